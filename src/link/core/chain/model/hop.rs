//! A follower between our server and the leader, as `observerMasterPort` makes it: our server is an
//! observer then, and takes this follower for its leader.
//!
//! The follower PINGs the observer by a timer of its own, and the answer marks us in the follower's
//! table alone. The mark goes on to the leader with the answer to the leader's next PING. Requests,
//! and what the leader says about them, pass through.

use super::lanes::{Lane, Random};
use super::{Rule, SECOND, Step, World, in_t, play, runs};

/// What our server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// Or an observer that is connected to the leader, which is the same here.
    Follower,
    /// An observer that is connected to a follower.
    ObserverOfFollower,
}

/// What happens at the follower in between.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum At {
    PingsObserver,
    HearsObserversPong { marked: bool },
    HearsPing,
    Pongs { marked: bool },
    Hears(usize),
    HearsAnswer(usize),
}

/// The follower in between. If there is a cut, it is between this one and the leader.
pub(super) struct Hop {
    marked: bool,
    busy_until: u64,
    /// To the leader, and from it.
    up: Lane,
    down: Lane,
}

impl Hop {
    pub(super) fn new(random: &mut Random, cut: u64) -> Self {
        let (cut_up, cut_down) = random.of(&[(cut, cut), (cut, u64::MAX), (u64::MAX, cut)]);
        Self {
            marked: false,
            busy_until: 0,
            up: Lane::new(random, cut_up),
            down: Lane::new(random, cut_down),
        }
    }
}

impl World {
    /// The leader says something to the server next to it: to ours, or to the one in between.
    pub(super) fn leader_says(&mut self, now: u64, to_ours: Step, in_between: At) {
        let (lane, step) = match &mut self.hop {
            Some(hop) => (&mut hop.down, Step::Hop(in_between)),
            None => (&mut self.down[1], to_ours),
        };
        if let Some(at) = lane.arrival(&mut self.random, now) {
            self.at(at, step);
        }
    }

    /// Our server says something to what it takes for its leader.
    pub(super) fn ours_says(&mut self, now: u64, to_leader: Step, in_between: At) {
        if let Some(at) = self.up[1].arrival(&mut self.random, now) {
            let hops = self.hop.is_some();
            self.at(
                at,
                if hops {
                    Step::Hop(in_between)
                } else {
                    to_leader
                },
            );
        }
    }

    /// The server in between says something to ours.
    fn hop_says(&mut self, now: u64, step: Step) {
        if let Some(at) = self.down[1].arrival(&mut self.random, now) {
            self.at(at, step);
        }
    }

    pub(super) fn in_between(&mut self, now: u64, at: At) {
        let Some(hop) = &mut self.hop else {
            unreachable!("nothing comes here without it");
        };
        match at {
            At::PingsObserver => {
                self.hop_says(now, Step::FollowerHearsPing);
                let next = self.until_next_ping();
                self.at(now + next, Step::Hop(At::PingsObserver));
            }
            At::HearsObserversPong { marked } => hop.marked |= marked,
            At::HearsPing => {
                let marked = std::mem::take(&mut hop.marked);
                let most = self.random.of(&[0, 0, SECOND / 5]);
                hop.busy_until = now.max(hop.busy_until) + self.random.below(most);
                let at = hop.busy_until;
                self.at(at, Step::Hop(At::Pongs { marked }));
            }
            At::Pongs { marked } => {
                if let Some(at) = hop.up.arrival(&mut self.random, now) {
                    self.at(at, Step::LeaderHearsPong { marked });
                }
            }
            At::Hears(request) => {
                if let Some(at) = hop.up.arrival(&mut self.random, now) {
                    self.at(at, Step::LeaderAnswers(request));
                }
            }
            At::HearsAnswer(request) => {
                let at = now.max(hop.busy_until);
                self.hop_says(at, Step::FollowerForwardsAnswer(request));
            }
        }
    }
}

/// Why observers behind a follower are not supported: what confirms a request to us has passed the
/// leader, but our mark may still wait in the follower's table for the leader's next PING.
#[test]
fn a_second_hop_breaks_the_proof() {
    let runs = runs(6_000);
    let tally = play(Rule::Real, Server::ObserverOfFollower, 0..runs);
    println!(
        "{runs} runs behind a follower: {} with two holders, by up to {:.3} T; first seed {:?}",
        tally.two_holders,
        in_t(tally.worst),
        tally.first,
    );
    assert!(
        tally.first.is_some(),
        "then such observers can be supported"
    );
}
