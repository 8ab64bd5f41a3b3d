//! Who leads. In place of ZooKeeper's exchange of votes there is an arbiter who sees everybody: of
//! those who have no leader, and hear each other, most agree upon the one with the newest history.

use std::time::Duration;

use super::Cluster;
use crate::core::quorum::{MemberId, Peer};

impl Cluster {
    /// When the arbiter has something to settle next.
    pub(super) fn next_election(&self) -> Option<Duration> {
        let election = self.ensemble.as_ref()?.terms.election;
        let looking = (0..self.size()).filter_map(|member| self.is_looking_since(member));
        // Those whose time has come already could not agree: something else must happen first. That
        // is at the latest when the next of them is ready, so only those who are not are waited for.
        looking
            .map(|since| since + election)
            .filter(|at| *at > self.elected_at)
            .min()
    }

    /// Has those agree who have looked for a leader for so long. Whether any did.
    pub(super) fn elect(&mut self, now: Duration, election: Duration) -> bool {
        self.elected_at = now;
        let ready: Vec<_> = (0..self.size())
            .filter(|member| {
                let since = self.is_looking_since(*member);
                since.is_some_and(|since| since + election <= now)
            })
            .collect();
        for &member in &ready {
            if let Some(leader) = self.leader_that_most_name_to(member) {
                let epoch = self.machines[leader].core.history().0;
                self.machines[member].order(now, |core| {
                    core.follow(MemberId(leader), epoch, now);
                });
                return true;
            }
        }
        let Some((leader, voters)) = self.candidate_of(&ready) else {
            return false;
        };
        self.install(leader, &voters, now);
        true
    }

    /// Makes a member the leader, whoever leads now: all whom it hears, and who hear it, give their
    /// leader up for it. Not if they are too few, or one of them knows more.
    pub(crate) fn make_leader(&mut self, member: usize, now: Duration) -> bool {
        if let Some(ensemble) = self
            .ensemble
            .as_mut()
            .filter(|_| self.machines[member].runs())
        {
            ensemble.wires.hurry(member, now);
        }
        self.settle(now);
        let awake: Vec<_> = (0..self.size())
            .filter(|other| self.machines[*other].runs())
            .collect();
        let voters = self.voters_for(member, &awake);
        if !awake.contains(&member) || voters.len() * 2 <= self.size() {
            return false;
        }
        for voter in &voters {
            self.machines[*voter].order(now, |core| core.look(now));
        }
        self.post(now);
        self.install(member, &voters, now);
        self.settle(now);
        true
    }

    fn install(&mut self, leader: usize, voters: &[usize], now: Duration) {
        let peers = voters
            .iter()
            .filter_map(|voter| self.machines[*voter].core.peer());
        let newest = peers.map(Peer::accepted_epoch).max();
        let epoch = newest.unwrap_or_default() + 1;
        self.machines[leader].order(now, |core| core.lead(epoch, now));
        for voter in voters.iter().filter(|voter| **voter != leader) {
            self.machines[*voter].order(now, |core| core.follow(MemberId(leader), epoch, now));
        }
    }

    fn is_looking_since(&self, member: usize) -> Option<Duration> {
        let machine = &self.machines[member];
        let peer = machine.core.peer().filter(|_| machine.runs());
        peer.and_then(Peer::is_looking_since)
    }

    /// The leader that most have, as far as a member can hear.
    fn leader_that_most_name_to(&self, member: usize) -> Option<usize> {
        let size = self.size();
        let heard = (0..size).filter(|other| self.hear_each_other(member, *other));
        let named: Vec<_> = heard
            .filter_map(|other| self.machines[other].core.peer()?.leader())
            .collect();
        (0..size).find(|leader| {
            let count = named.iter().filter(|named| named.0 == *leader).count();
            count * 2 > size
                && self.hear_each_other(member, *leader)
                && self.machines[*leader]
                    .core
                    .peer()
                    .is_some_and(|peer| peer.leader() == Some(MemberId(*leader)))
        })
    }

    fn hear_each_other(&self, one: usize, other: usize) -> bool {
        let wires = self.ensemble.as_ref().map(|ensemble| &ensemble.wires);
        one != other
            && self.machines[one].runs()
            && self.machines[other].runs()
            && wires.is_some_and(|wires| wires.are_joined(one, other))
    }

    /// The one of them with the newest history for whom most would vote, and those.
    fn candidate_of(&self, ready: &[usize]) -> Option<(usize, Vec<usize>)> {
        let mut best_first = ready.to_vec();
        best_first.sort_by_key(|member| (self.machines[*member].core.history(), *member));
        best_first.reverse();
        best_first.into_iter().find_map(|member| {
            let voters = self.voters_for(member, ready);
            (voters.len() * 2 > self.size()).then_some((member, voters))
        })
    }

    /// Those of them who would vote for it, itself included: they know no more, and hear it.
    fn voters_for(&self, candidate: usize, of: &[usize]) -> Vec<usize> {
        let history = |member: usize| self.machines[member].core.history();
        let votes = |member: &&usize| {
            **member == candidate
                || self.hear_each_other(candidate, **member)
                    && history(**member) <= history(candidate)
        };
        of.iter().filter(votes).copied().collect()
    }
}
