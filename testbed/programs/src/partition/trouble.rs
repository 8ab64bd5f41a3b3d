//! What can go wrong between servers.

use std::fmt;

use super::{Holder, Servers};

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
    pub(super) fn strike(self, servers: &Servers, seat: usize, holders: &[Holder]) {
        match self {
            Trouble::FollowerCutOff => servers.isolate(seat),
            Trouble::FollowerMuted => servers.mute(seat),
            Trouble::FollowerDeafened => servers.deafen(seat),
            Trouble::FollowerStopped => servers.stop(seat),
            Trouble::FollowerKilledAfterAnswer => {
                holders.iter().for_each(Holder::ask);
                servers.kill(seat);
            }
            Trouble::LeaderReplaced => {
                let leader = servers.leader();
                servers.kill(leader);
                servers.wait_for_other_leader(leader);
            }
            Trouble::LeaderCutOff => {
                servers.isolate(seat);
                servers.wait_for_other_leader(seat);
            }
            Trouble::LeaderStopped => {
                servers.stop(seat);
                servers.wait_for_other_leader(seat);
                servers.cont(seat);
            }
            Trouble::LeaderStoppedThenCutOff => {
                servers.stop(seat);
                servers.wait_for_other_leader(seat);
                servers.isolate(seat);
                servers.cont(seat);
            }
        }
    }

    /// Ends the harm.
    pub(super) fn mend(self, servers: &Servers, seat: usize, led: usize) {
        servers.heal();
        match self {
            Trouble::FollowerStopped => servers.cont(seat),
            Trouble::FollowerKilledAfterAnswer => servers.restart(seat),
            Trouble::LeaderReplaced => servers.restart(led),
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
