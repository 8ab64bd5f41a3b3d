//! Which addresses to dial, and in which order.

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::hosts::{HostPort, Resolving};

/// How long to wait for a name whose last known addresses can be used instead: the session must not
/// be lost to a resolver that hangs.
const FRESHER: Duration = Duration::from_millis(200);
/// How often a wait for the resolver looks whether the client was closed.
const SLICE: Duration = Duration::from_millis(100);

/// One address to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// As the connect string has it.
    pub(super) host: String,
    /// The same without the port.
    pub(super) name: String,
    pub(super) address: SocketAddr,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        if self.address.to_string() != self.host {
            write!(f, " ({})", self.address)?;
        }
        Ok(())
    }
}

/// The addresses of one round.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) targets: Vec<Target>,
    /// Hosts without an address, and why.
    pub(super) unknown: Vec<(String, String)>,
    /// Hosts whose addresses are those of the last time, and why.
    pub(super) not_fresh: Vec<(String, String)>,
}

/// All hosts, and what the resolver said about them.
pub(super) struct Targets {
    lookups: Vec<Lookup>,
    /// The address that failed last: it is tried last.
    pub(super) failed_last: Option<SocketAddr>,
}

struct Lookup {
    host: HostPort,
    /// A question that has no answer yet. There is never more than one, however long the resolver
    /// hangs.
    asked: Option<Resolving>,
    /// The last answer.
    known: Vec<SocketAddr>,
}

impl Targets {
    pub(super) fn new(hosts: &[HostPort]) -> Self {
        let lookups = hosts.iter().map(|host| Lookup {
            host: host.clone(),
            asked: None,
            known: Vec::new(),
        });
        Self {
            lookups: lookups.collect(),
            failed_last: None,
        }
    }

    /// How many addresses there are, as far as is known.
    pub(super) fn count(&self) -> usize {
        let known = self.lookups.iter().map(|lookup| lookup.known.len().max(1));
        known.sum()
    }

    /// All addresses of all hosts, in random order. Names are asked for again each time, all at
    /// once, for `limit` at the most.
    pub(super) fn round(&mut self, limit: Duration, given_up: impl Fn() -> bool) -> Round {
        let begun = Instant::now();
        for lookup in &mut self.lookups {
            lookup.asked.get_or_insert_with(|| lookup.host.resolve());
        }
        let mut round = Round::default();
        for lookup in &mut self.lookups {
            let failure = lookup.wait(begun, limit, &given_up);
            let host = lookup.host.to_string();
            match failure {
                Some(why) if lookup.known.is_empty() => round.unknown.push((host, why)),
                Some(why) => round.not_fresh.push((host, why)),
                None => {}
            }
        }
        round.targets = self.known();
        shuffle(&mut round.targets);
        let failed_last = self.failed_last;
        round
            .targets
            .sort_by_key(|target| Some(target.address) == failed_last);
        round
    }

    /// Without asking for the names again.
    pub(super) fn known_shuffled(&self) -> Vec<Target> {
        let mut targets = self.known();
        shuffle(&mut targets);
        targets
    }

    fn known(&self) -> Vec<Target> {
        let mut seen = HashSet::new();
        let mut targets = Vec::new();
        for lookup in &self.lookups {
            for address in lookup.known.iter().filter(|address| seen.insert(**address)) {
                targets.push(Target {
                    host: lookup.host.to_string(),
                    name: lookup.host.host.clone(),
                    address: *address,
                });
            }
        }
        targets
    }
}

impl Lookup {
    /// Waits for the answer. Returns why there is none, or no good one.
    fn wait(
        &mut self,
        begun: Instant,
        limit: Duration,
        given_up: &impl Fn() -> bool,
    ) -> Option<String> {
        let patience = if self.known.is_empty() {
            limit
        } else {
            limit.min(FRESHER)
        };
        let deadline = begun + patience;
        let asked = self.asked.as_ref()?;
        loop {
            match asked.wait(deadline.min(Instant::now() + SLICE)) {
                Some(answer) => {
                    self.asked = None;
                    return answer.map(|found| self.known = found).err();
                }
                None if given_up() || Instant::now() >= deadline => {
                    return Some("the name was not resolved in time".into());
                }
                None => {}
            }
        }
    }
}

fn shuffle<T>(items: &mut [T]) {
    for last in (1..items.len()).rev() {
        let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
        let other = random % (u64::try_from(last).expect("a usize fits") + 1);
        items.swap(last, usize::try_from(other).expect("not above `last`"));
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    fn targets(hosts: &[&str]) -> Targets {
        let hosts: Vec<_> = hosts.iter().map(|h| h.parse().expect("good")).collect();
        Targets::new(&hosts)
    }

    fn shown(round: &Round) -> Vec<String> {
        round.targets.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_address_comes_once_in_every_round() {
        let mut targets = targets(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.1:1", "[::1]:1"]);
        let mut orders = HashSet::new();
        for _ in 0..200 {
            let mut order = shown(&targets.round(SHORT, || false));
            orders.insert(order.clone());
            order.sort();
            assert_eq!(order, ["10.0.0.1:1", "10.0.0.2:1", "[::1]:1"]);
        }
        assert_eq!(orders.len(), 6, "all orders come up");
    }

    #[test]
    fn the_one_that_failed_last_is_tried_last() {
        let mut targets = targets(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]);
        targets.failed_last = Some("10.0.0.2:1".parse().expect("good"));
        for _ in 0..50 {
            let order = shown(&targets.round(SHORT, || false));
            assert_eq!(order[2], "10.0.0.2:1");
        }
    }

    #[test]
    fn a_name_that_is_not_resolved_in_time_does_not_hold_up_the_others() {
        let mut targets = targets(&["slow", "10.0.0.1:1"]);
        let (resolver, never) = Resolving::never();
        targets.lookups[0].asked = Some(never);
        let round = targets.round(SHORT, || false);
        assert_eq!(shown(&round), ["10.0.0.1:1"]);
        assert_eq!(round.unknown.len(), 1);
        assert_eq!(round.unknown[0].0, "slow:2181");
        // The question is left open; its late answer is used in the next round.
        let late = vec!["10.0.0.9:2181".parse().expect("good")];
        resolver.send(Ok(late)).expect("still waited for");
        let round = targets.round(SHORT, || false);
        assert!(shown(&round).contains(&"slow:2181 (10.0.0.9:2181)".to_owned()));
        assert!(round.unknown.is_empty());
    }

    #[test]
    fn the_last_known_addresses_do_when_the_resolver_fails() {
        let mut targets = targets(&["name"]);
        for answer in [
            Ok(vec!["10.0.0.9:2181".parse().expect("good")]),
            Err("no".into()),
        ] {
            let (resolver, asked) = Resolving::never();
            resolver.send(answer).expect("room");
            targets.lookups[0].asked = Some(asked);
            let round = targets.round(SHORT, || false);
            assert_eq!(shown(&round), ["name:2181 (10.0.0.9:2181)"]);
            assert!(round.unknown.is_empty());
        }
    }

    #[test]
    fn a_close_ends_the_wait() {
        let mut targets = targets(&["slow"]);
        let (_resolver, never) = Resolving::never();
        targets.lookups[0].asked = Some(never);
        let begun = Instant::now();
        targets.round(Duration::from_secs(60), || true);
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
