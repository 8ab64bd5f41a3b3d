//! Why there is no connection, as far as it is known.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::sync;

/// The fate of each server since the last connection.
#[derive(Default)]
pub(super) struct Trouble {
    /// The last failure at each address, by the host and the address behind it.
    failures: BTreeMap<String, String>,
    /// The one that is being dialled, or was dialled last.
    dialled: Option<LastDial>,
    /// The scheme that a server refused. Nothing goes on after that.
    pub(super) refused_auth: Option<String>,
}

struct LastDial {
    server: String,
    since: Instant,
}

impl Trouble {
    pub(super) fn dialling(&mut self, server: String) {
        self.dialled = Some(LastDial {
            server,
            since: sync::now(),
        });
    }

    pub(super) fn failed(&mut self, server: String, why: String) {
        self.dialled.take_if(|dialled| dialled.server == server);
        self.failures.insert(server, why);
    }

    /// The trouble with each of these hosts: one reason for each at the least.
    pub(super) fn of_each(&self, hosts: &[String]) -> String {
        let reasons = hosts.iter().flat_map(|host| {
            let reasons: Vec<_> = self.of(host).collect();
            if reasons.is_empty() {
                vec![format!("{host}: not tried in that time")]
            } else {
                reasons
            }
        });
        reasons.collect::<Vec<_>>().join("; ")
    }

    /// The trouble with those of which something is known; `None` if nothing is.
    pub(super) fn known(&self) -> Option<String> {
        let failures = self.failures.iter();
        let mut reasons: Vec<_> = failures.map(|(server, why)| shown(server, why)).collect();
        reasons.extend(self.unanswered(|_| true));
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    fn of(&self, host: &str) -> impl Iterator<Item = String> {
        let is_of = move |server: &str| {
            let behind = server.strip_prefix(host);
            behind.is_some_and(|address| address.is_empty() || address.starts_with(" ("))
        };
        let failures = self.failures.iter();
        let failed = failures.filter(move |(server, _)| is_of(server));
        let failed = failed.map(|(server, why)| shown(server, why));
        failed.chain(self.unanswered(is_of))
    }

    /// The one that is being dialled, if nothing else is known of it.
    fn unanswered(&self, is_meant: impl Fn(&str) -> bool) -> Option<String> {
        let dialled = self.dialled.as_ref()?;
        let server = &dialled.server;
        if !is_meant(server) || self.failures.contains_key(server) {
            return None;
        }
        let waited = sync::now().saturating_duration_since(dialled.since);
        let waited = Duration::from_millis(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
        Some(shown(
            server,
            &format!("no answer so far, after {waited:?}"),
        ))
    }
}

fn shown(server: &str, why: &str) -> String {
    format!("{server}: {why}")
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_a_reason() {
        let hosts = ["zk1:2181", "zk2:2181", "zk3:2181", "zk:1"].map(str::to_owned);
        let mut trouble = Trouble::default();
        assert_eq!(trouble.known(), None);
        trouble.dialling("zk1:2181 (10.0.0.1:2181)".into());
        trouble.failed("zk1:2181 (10.0.0.1:2181)".into(), "refused".into());
        trouble.failed("zk1:2181 (10.0.0.2:2181)".into(), "silent".into());
        trouble.dialling("zk2:2181".into());
        let text = trouble.of_each(&hosts);
        let mut parts = text.split("; ");
        let mut next = || parts.next().expect("one more");
        assert_eq!(next(), "zk1:2181 (10.0.0.1:2181): refused");
        assert_eq!(next(), "zk1:2181 (10.0.0.2:2181): silent");
        assert!(
            next().starts_with("zk2:2181: no answer so far, after "),
            "{text}"
        );
        assert_eq!(next(), "zk3:2181: not tried in that time");
        // Its name begins like the others.
        assert_eq!(next(), "zk:1: not tried in that time");
        assert_eq!(trouble.known().expect("two").split("; ").count(), 3);
    }
}
