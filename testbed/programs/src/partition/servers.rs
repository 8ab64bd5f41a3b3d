//! The ensemble on which cases are played: Apache's, or the one in memory.

use std::net::SocketAddr;
use std::time::Duration;

use testbed::wait_until;

/// Far longer than any election.
const ELECTION: Duration = Duration::from_secs(90);

/// Three servers, and the ways between them.
#[derive(Debug)]
pub enum Servers {
    /// Processes of Apache ZooKeeper.
    Apache(Box<testbed::Ensemble>),
    /// In this process, and ten times as fast.
    Memory(zklock_test::Ensemble),
}

impl Servers {
    /// Apache's. A tick is a second: a quarter of the shorter session timeout, the longest that is
    /// of use with it.
    pub fn apache(sync_limit: u32) -> Servers {
        let builder = testbed::Server::builder()
            .tick_ms(1000)
            .setting("syncLimit", &sync_limit.to_string());
        Servers::Apache(Box::new(testbed::Ensemble::start_proxied(3, &builder)))
    }

    pub fn in_memory(sync_limit: u32) -> Servers {
        let ensemble = zklock_test::Ensemble::builder(3).sync_limit(sync_limit);
        Servers::Memory(ensemble.start().expect("loopback has free ports"))
    }

    /// The unit of their limits.
    pub fn tick(&self) -> Duration {
        match self {
            Servers::Apache(_) => Duration::from_secs(1),
            Servers::Memory(_) => Duration::from_millis(100),
        }
    }

    pub(super) fn size(&self) -> usize {
        match self {
            Servers::Apache(ensemble) => ensemble.size(),
            Servers::Memory(ensemble) => ensemble.size(),
        }
    }

    pub(super) fn address(&self, index: usize) -> SocketAddr {
        match self {
            Servers::Apache(ensemble) => ensemble.server(index).addr(),
            Servers::Memory(ensemble) => ensemble.server(index).address(),
        }
    }

    pub(super) fn leader(&self) -> usize {
        match self {
            Servers::Apache(ensemble) => ensemble.leader(),
            Servers::Memory(ensemble) => ensemble.leader(),
        }
    }

    pub(super) fn follower(&self) -> usize {
        match self {
            Servers::Apache(ensemble) => ensemble.follower(),
            Servers::Memory(ensemble) => ensemble.follower(),
        }
    }

    pub(super) fn wait_for_other_leader(&self, than: usize) {
        let others: Vec<usize> = (0..self.size()).filter(|index| *index != than).collect();
        match self {
            Servers::Apache(ensemble) => wait_until("another server leads", ELECTION, || {
                ensemble.leader_among(&others).is_some()
            }),
            Servers::Memory(ensemble) => {
                let leads = |leader: Option<usize>| leader.is_some_and(|leader| leader != than);
                let is_elected =
                    ensemble.wait_until(ELECTION, |ensemble| leads(ensemble.current_leader()));
                assert!(is_elected, "another server leads");
            }
        }
    }

    pub(super) fn isolate(&self, index: usize) {
        match self {
            Servers::Apache(ensemble) => ensemble.links().isolate(index),
            Servers::Memory(ensemble) => ensemble.isolate(index),
        }
    }

    pub(super) fn mute(&self, index: usize) {
        match self {
            Servers::Apache(ensemble) => ensemble.links().mute(index),
            Servers::Memory(ensemble) => ensemble.mute(index),
        }
    }

    pub(super) fn deafen(&self, index: usize) {
        match self {
            Servers::Apache(ensemble) => ensemble.links().deafen(index),
            Servers::Memory(ensemble) => ensemble.deafen(index),
        }
    }

    /// Ends what was done to the ways between them.
    pub(super) fn heal(&self) {
        match self {
            Servers::Apache(ensemble) => ensemble.links().heal(),
            Servers::Memory(ensemble) => ensemble.heal(),
        }
    }

    pub(super) fn stop(&self, index: usize) {
        match self {
            Servers::Apache(ensemble) => ensemble.stop(index),
            Servers::Memory(ensemble) => ensemble.pause(index),
        }
    }

    pub(super) fn cont(&self, index: usize) {
        match self {
            Servers::Apache(ensemble) => ensemble.cont(index),
            Servers::Memory(ensemble) => ensemble.resume(index),
        }
    }

    pub(super) fn kill(&self, index: usize) {
        match self {
            Servers::Apache(ensemble) => ensemble.kill(index),
            Servers::Memory(ensemble) => ensemble.kill(index),
        }
    }

    pub(super) fn restart(&self, index: usize) {
        match self {
            Servers::Apache(ensemble) => ensemble.restart(index),
            Servers::Memory(ensemble) => ensemble.restart(index).expect("its port was kept"),
        }
    }

    pub(super) fn wait_until_all_serve(&self) {
        match self {
            Servers::Apache(ensemble) => ensemble.wait_until_awake_serve(),
            Servers::Memory(ensemble) => {
                let all = |ensemble: &zklock_test::Ensemble| {
                    (0..ensemble.size()).all(|index| ensemble.serves(index))
                };
                assert!(ensemble.wait_until(ELECTION, all), "all serve");
            }
        }
    }
}
