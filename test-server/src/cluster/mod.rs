//! One server or several, with the wires between them: bytes and times go in, bytes come out.
//! Without threads, sockets and clocks.

use std::time::Duration;

use crate::core::quorum::{Limits, MemberId, Peer};
use crate::core::{ConnectionId, Settings};
use crate::trouble::{Act, Machine};

use self::wires::Wires;

mod election;
#[cfg(test)]
mod tests;
mod wires;

/// How an ensemble is set up, beside its servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) limits: Limits,
    /// How long those without a leader need to agree upon one.
    pub(crate) election: Duration,
}

#[derive(Debug)]
pub(crate) struct Cluster {
    machines: Vec<Machine>,
    /// None for a server that stands alone.
    ensemble: Option<Ensemble>,
    /// When the arbiter looked last.
    elected_at: Duration,
}

/// What is between the members.
#[derive(Debug)]
struct Ensemble {
    terms: Terms,
    wires: Wires,
}

impl Cluster {
    /// One server that stands alone.
    pub(crate) fn alone(settings: Settings) -> Self {
        Self {
            machines: vec![Machine::new(settings)],
            ensemble: None,
            elected_at: Duration::ZERO,
        }
    }

    /// Servers that elect a leader among them; each has its own settings.
    pub(crate) fn of(settings: Vec<Settings>, terms: Terms, now: Duration) -> Self {
        let size = settings.len();
        let numbered = settings.into_iter().enumerate();
        let machines = numbered.map(|(index, settings)| {
            let mut machine = Machine::new(settings);
            machine.core.join_ensemble(MemberId(index), terms.limits);
            machine
        });
        let mut cluster = Self {
            machines: machines.collect(),
            ensemble: Some(Ensemble {
                terms,
                wires: Wires::between(size),
            }),
            elected_at: now,
        };
        // Nobody has anything to lose yet: the first election takes no time.
        cluster.elect(now, Duration::ZERO);
        cluster.settle(now);
        cluster
    }

    pub(crate) fn size(&self) -> usize {
        self.machines.len()
    }

    pub(crate) fn machine(&self, member: usize) -> &Machine {
        &self.machines[member]
    }

    /// For what the others need not hear of. Else see [`Cluster::order`].
    pub(crate) fn machine_mut(&mut self, member: usize) -> &mut Machine {
        &mut self.machines[member]
    }

    /// Has something done to a member, and what follows from it among them all.
    pub(crate) fn order<R>(
        &mut self,
        member: usize,
        now: Duration,
        order: impl FnOnce(&mut Machine) -> R,
    ) -> R {
        let result = order(&mut self.machines[member]);
        self.settle(now);
        result
    }

    /// Does everything whose time has come.
    pub(crate) fn advance(&mut self, now: Duration) {
        // What has arrived is heard before anybody gives up waiting for it.
        self.settle(now);
        for machine in &mut self.machines {
            machine.advance(now);
        }
        self.settle(now);
    }

    /// When [`Cluster::advance`] is to be called next.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let machines = self.machines.iter().filter_map(Machine::deadline).min();
        let Some(ensemble) = &self.ensemble else {
            return machines;
        };
        let wires = ensemble.wires.next_due(|to| !self.machines[to].is_paused());
        let election = self.next_election();
        [machines, wires, election].into_iter().flatten().min()
    }

    /// What is to be done with the sockets of members, in order, since this was last called.
    pub(crate) fn take_acts(&mut self) -> Vec<(usize, ConnectionId, Act)> {
        let numbered = self.machines.iter_mut().enumerate();
        let acts = numbered.flat_map(|(member, machine)| {
            let acts = machine.take_acts().into_iter();
            acts.map(move |(connection, act)| (member, connection, act))
        });
        acts.collect()
    }

    /// Lets what members send each other arrive, and elections end, until nothing more is due.
    pub(crate) fn settle(&mut self, now: Duration) {
        while let Some(ensemble) = &self.ensemble {
            let election = ensemble.terms.election;
            self.post(now);
            if !self.deliver(now) && !self.elect(now, election) {
                return;
            }
        }
    }

    /// Puts what members have sent on their wires.
    fn post(&mut self, now: Duration) {
        let Some(ensemble) = &mut self.ensemble else {
            return;
        };
        for (from, machine) in self.machines.iter_mut().enumerate() {
            for (to, packet) in machine.core.take_packets() {
                ensemble.wires.send(from, to.0, packet, now);
            }
        }
    }

    /// Whether anything has arrived.
    fn deliver(&mut self, now: Duration) -> bool {
        let Some(ensemble) = &mut self.ensemble else {
            return false;
        };
        let machines = &self.machines;
        let Some((from, to, packet)) = ensemble.wires.take(now, |to| !machines[to].is_paused())
        else {
            return false;
        };
        if self.machines[to].is_stopped() {
            ensemble.wires.answer_for_the_dead(to, from, &packet, now);
        } else {
            self.machines[to].packet(MemberId(from), packet, now);
        }
        true
    }

    /// Goes on after a pause. What came meanwhile waits in the buffers of a follower, and is heard
    /// before it notices that it waited too long; a leader's sessions are over before it hears.
    pub(crate) fn resume(&mut self, member: usize, now: Duration) {
        self.machines[member].wake();
        let leads = self.machines[member]
            .core
            .peer()
            .is_none_or(|peer| peer.leader() == Some(MemberId(member)));
        if !leads {
            self.settle(now);
        }
        self.machines[member].advance(now);
        self.settle(now);
    }

    /// The member's process ends; the system ends its connections.
    pub(crate) fn stop(&mut self, member: usize, now: Duration) {
        self.post(now);
        self.machines[member].stop(now);
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.wires.reset(member, now);
        }
        self.settle(now);
    }

    /// Ends a session, wherever that is done. Whether it was there. In an ensemble the leader does it,
    /// and nobody while the one that most have is frozen: it would have to speak.
    pub(crate) fn expire(&mut self, member: usize, session: i64, now: Duration) -> bool {
        let runs = |member: &usize| self.machines[*member].runs();
        let by = match &self.ensemble {
            None => Some(member),
            Some(_) => self.leader().filter(runs),
        };
        by.is_some_and(|by| self.order(by, now, |machine| machine.expire(session, now)))
    }

    /// The member that leads and serves, and that most have for their leader.
    pub(crate) fn leader(&self) -> Option<usize> {
        let size = self.machines.len();
        (0..size).find(|member| {
            let follows = |machine: &&Machine| {
                let peer = machine.core.peer();
                peer.is_some_and(|peer| peer.leader() == Some(MemberId(*member)))
                    && !machine.is_stopped()
            };
            let serves = self.machines[*member]
                .core
                .peer()
                .is_some_and(|peer| peer.serves() && peer.leader() == Some(MemberId(*member)));
            let count = self.machines.iter().filter(follows).count();
            serves && !self.machines[*member].is_stopped() && count * 2 > size
        })
    }

    /// A member that follows the one that leads, and serves. Not one that is frozen, and not one that
    /// has yet to notice that another leads than it believes, though both take clients.
    pub(crate) fn follower(&self) -> Option<usize> {
        let leader = self.leader()?;
        let follows = |peer: &Peer| peer.serves() && peer.leader() == Some(MemberId(leader));
        (0..self.size()).find(|member| {
            let machine = &self.machines[*member];
            *member != leader && machine.runs() && machine.core.peer().is_some_and(follows)
        })
    }

    /// Whether a member has a leader, or is it, and serves.
    pub(crate) fn serves(&self, member: usize) -> bool {
        let machine = &self.machines[member];
        let peer = machine.core.peer();
        !machine.is_stopped() && peer.is_none_or(Peer::serves)
    }

    /// Swallows what one member sends to another, or lets it pass again; what was swallowed arrives
    /// then.
    pub(crate) fn cut(&mut self, from: usize, to: usize, is_cut: bool, now: Duration) {
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.wires.cut(from, to, is_cut);
        }
        self.settle(now);
    }

    /// How much later all arrives that a member sends to others, or they to it.
    pub(crate) fn lag(&mut self, member: usize, by: Duration, now: Duration) {
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.wires.lag(member, by);
        }
        self.settle(now);
    }

    /// All wires pass again, without delay.
    pub(crate) fn mend(&mut self, now: Duration) {
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.wires.mend();
        }
        self.settle(now);
    }
}
