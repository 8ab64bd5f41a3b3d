//! What can go wrong between servers.

use std::fmt;
use std::time::Duration;

use super::Holder;
use testbed::{Ensemble, wait_until};

/// Elections take a limit of silence and a little more.
const ELECTION: Duration = Duration::from_secs(90);

/// A trouble of the server at which the holders sit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    FollowerCutOff,
    /// The follower hears the leader, but is not heard.
    FollowerMuted,
    /// The follower is heard, but hears nobody.
    FollowerDeafened,
    FollowerStopped,
    /// What it had noted for the leader dies with it.
    FollowerKilledAfterAnswer,
    /// The leader dies, the holders' follower stays.
    LeaderReplaced,
    LeaderCutOff,
    /// Stopped until another leads, then continued.
    LeaderStopped,
    /// The same, but when it is continued it hears nobody and nobody hears it: it takes a while to
    /// learn that it leads no more, and answers meanwhile.
    LeaderStoppedThenCutOff,
}

impl Trouble {
    pub const ALL: [Trouble; 9] = [
        Trouble::FollowerCutOff,
        Trouble::FollowerMuted,
        Trouble::FollowerDeafened,
        Trouble::FollowerStopped,
        Trouble::FollowerKilledAfterAnswer,
        Trouble::LeaderReplaced,
        Trouble::LeaderCutOff,
        Trouble::LeaderStopped,
        Trouble::LeaderStoppedThenCutOff,
    ];

    /// Whether the holders sit at the leader.
    pub(super) fn harms_leader(self) -> bool {
        matches!(
            self,
            Trouble::LeaderCutOff | Trouble::LeaderStopped | Trouble::LeaderStoppedThenCutOff
        )
    }

    /// Whether who reaches only the server in trouble is cut off from the quorum for good, so that
    /// another must get in.
    pub fn parts_side_from_quorum(self) -> bool {
        !matches!(self, Trouble::LeaderReplaced | Trouble::LeaderStopped)
    }

    /// Does the harm. Returns when what follows is left to the servers: where there must be a new
    /// leader, there is one.
    pub(super) fn strike(self, ensemble: &Ensemble, seat: usize, holders: &[Holder]) {
        let links = ensemble.links();
        match self {
            Trouble::FollowerCutOff => links.isolate(seat),
            Trouble::FollowerMuted => links.mute(seat),
            Trouble::FollowerDeafened => links.deafen(seat),
            Trouble::FollowerStopped => ensemble.stop(seat),
            Trouble::FollowerKilledAfterAnswer => {
                holders.iter().for_each(Holder::ask);
                ensemble.kill(seat);
            }
            Trouble::LeaderReplaced => {
                let leader = ensemble.leader();
                ensemble.kill(leader);
                wait_for_other_leader(ensemble, leader);
            }
            Trouble::LeaderCutOff => {
                links.isolate(seat);
                wait_for_other_leader(ensemble, seat);
            }
            Trouble::LeaderStopped => {
                ensemble.stop(seat);
                wait_for_other_leader(ensemble, seat);
                ensemble.cont(seat);
            }
            Trouble::LeaderStoppedThenCutOff => {
                ensemble.stop(seat);
                wait_for_other_leader(ensemble, seat);
                links.isolate(seat);
                ensemble.cont(seat);
            }
        }
    }

    /// Ends the harm.
    pub(super) fn mend(self, ensemble: &Ensemble, seat: usize) {
        ensemble.links().heal();
        match self {
            Trouble::FollowerStopped => ensemble.cont(seat),
            Trouble::FollowerKilledAfterAnswer | Trouble::LeaderReplaced => {
                let dead = (0..ensemble.size()).filter(|index| !ensemble.server(*index).is_alive());
                dead.for_each(|index| ensemble.restart(index));
            }
            _ => {}
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Trouble::FollowerCutOff => "follower cut off, both ways",
            Trouble::FollowerMuted => "follower not heard",
            Trouble::FollowerDeafened => "follower hears nobody",
            Trouble::FollowerStopped => "follower stopped",
            Trouble::FollowerKilledAfterAnswer => "follower killed after an answer",
            Trouble::LeaderReplaced => "leader killed, follower stays",
            Trouble::LeaderCutOff => "leader cut off",
            Trouble::LeaderStopped => "leader stopped till another led, continued",
            Trouble::LeaderStoppedThenCutOff => "the same, and cut off when continued",
        })
    }
}

fn wait_for_other_leader(ensemble: &Ensemble, than: usize) {
    let others: Vec<usize> = (0..ensemble.size())
        .filter(|index| *index != than)
        .collect();
    wait_until("another server leads", ELECTION, || {
        ensemble.leader_among(&others).is_some()
    });
}
