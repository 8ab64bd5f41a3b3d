//! What is said soon, so that it goes in company.
//!
//! While few packets of ours are in flight, whoever asks is sent at once. With [`MOST_IN_FLIGHT`],
//! the server is busy with them, and one more would wait there for its turn; so it waits here
//! instead, and others may join it. It goes when an answer makes room, and after [`LONGEST_WAIT`] at
//! the latest: where each answer takes long because the servers are far apart, or their disks slow,
//! nobody waits for another's.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::batch::{Outcome, Packing};
use super::group::Group;
use super::wire::{Server, State, Wire};

/// So many packets keep a server busy: it takes some 50 us for each, and answers within a few
/// hundred.
const MOST_IN_FLIGHT: usize = 3;
/// How long one waits, at the most.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_micros(500);
/// Of one batch. Far below the least `jute.maxbuffer` that an ensemble could live with.
const MOST_BYTES: usize = 16 << 10;
/// After so many refusals in a row ...
const MOST_REFUSALS: u32 = 3;
/// ... so many groups go each by itself.
const APART: u32 = 1_000;

/// Groups that have not been said yet, in their order; of the present connection.
pub(super) struct Waiting {
    groups: Vec<Group>,
    bytes: usize,
    /// When the first of them came.
    since: Option<Instant>,
    longest: Duration,
    experience: Experience,
}

/// What came of sharing packets before.
#[derive(Default)]
struct Experience {
    /// Servers do not know, or choke on, such packets.
    no_writes: bool,
    no_lists: bool,
    /// Multis refused since the last one that was done.
    refusals: u32,
    /// So many groups more go by themselves.
    apart: u32,
}

impl Waiting {
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            groups: Vec::new(),
            bytes: 0,
            since: None,
            longest,
            experience: Experience::default(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn note(&mut self, outcome: Outcome) {
        let experience = &mut self.experience;
        experience.no_writes |= outcome.no_writes;
        experience.no_lists |= outcome.no_lists;
        if outcome.done {
            experience.refusals = 0;
        } else if outcome.refused {
            experience.refusals += 1;
            if experience.refusals >= MOST_REFUSALS {
                experience.refusals = 0;
                experience.apart = APART;
            }
        }
    }

    /// The connection is gone: all that waited for it.
    pub(super) fn take_all(&mut self) -> Vec<Group> {
        self.bytes = 0;
        self.since = None;
        std::mem::take(&mut self.groups)
    }
}

impl Experience {
    fn packing(&mut self, groups: usize) -> Packing {
        if self.apart > 0 {
            let groups = u32::try_from(groups).unwrap_or(u32::MAX);
            self.apart = self.apart.saturating_sub(groups);
            return Packing::NONE;
        }
        Packing {
            writes: !self.no_writes,
            lists: !self.no_lists,
        }
    }
}

/// What is said together next.
#[derive(Default)]
struct NextBatch {
    groups: Vec<Group>,
    bytes: usize,
    /// In which it creates nodes.
    folders: HashSet<String>,
}

impl NextBatch {
    /// A transaction makes no two contenders of one folder: it is their fencing token.
    fn has_room_for(&self, group: &Group) -> bool {
        let is_first_there = |folder| !self.folders.contains(folder);
        self.groups.is_empty()
            || self.bytes + group.bytes() <= MOST_BYTES && group.folder().is_none_or(is_first_there)
    }

    fn add(&mut self, group: Group) {
        self.bytes += group.bytes();
        self.folders.extend(group.folder().map(str::to_owned));
        self.groups.push(group);
    }
}

impl State {
    /// Says a group now, or has it wait for a moment. Returns whether there is something to send.
    pub(super) fn say_soon(&mut self, server: &Server, group: Group) -> bool {
        self.waiting.bytes += group.bytes();
        self.waiting.groups.push(group);
        if self.in_flight.own() < MOST_IN_FLIGHT {
            self.say_waiting(server);
            return true;
        }
        if self.waiting.since.is_none() {
            self.waiting.since = Some(Instant::now());
            // It must not sleep for longer than this one may wait.
            server.stream.rouse();
        }
        false
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.waiting.since.is_some()
    }

    /// Says all that waits, now.
    pub(super) fn say_waiting(&mut self, server: &Server) {
        let mut groups = self.waiting.take_all().into_iter().peekable();
        while groups.peek().is_some() {
            let mut batch = NextBatch::default();
            while let Some(group) = groups.next_if(|group| batch.has_room_for(group)) {
                batch.add(group);
            }
            self.say_batch(server, batch.groups);
        }
    }

    fn say_batch(&mut self, server: &Server, groups: Vec<Group>) {
        if groups.len() == 1 && !groups[0].has_company_of_its_own() {
            groups.into_iter().for_each(|group| self.say(server, group));
        } else {
            let packing = self.waiting.experience.packing(groups.len());
            self.say_together(server, groups, packing);
        }
    }

    /// Says what waits, if answers have made room or it has waited long enough. Returns for how
    /// long it may still wait.
    pub(super) fn say_what_is_due(&mut self, server: &Server) -> Option<Duration> {
        let waited = self.waiting.since?.elapsed();
        let left = self.waiting.longest.checked_sub(waited);
        if let Some(left) = left.filter(|_| self.in_flight.own() >= MOST_IN_FLIGHT) {
            return Some(left);
        }
        self.say_waiting(server);
        None
    }
}

impl Wire {
    /// Sends what has waited long enough. Returns when to look again, if something waits.
    pub(super) fn send_what_is_due(&self, server: &Server) -> Option<Duration> {
        let mut state = self.state.lock();
        if !state.has_waiting() {
            return None;
        }
        let due = state.say_what_is_due(server);
        drop(state);
        if due.is_none() {
            self.flush(server);
        }
        due
    }
}
