//! Requests held briefly so that they can share a packet.
//!
//! While few packets of ours are in flight, whoever asks is sent at once. With [`MOST_IN_FLIGHT`],
//! the server is busy with them, and one more would wait there for its turn; so it waits here
//! instead, and others may join it. It goes when an answer makes room, and after [`LONGEST_WAIT`] at
//! the latest: where each answer takes long because the servers are far apart, or their disks slow,
//! nobody waits for another's.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use super::batch::{MOST_BYTES, Outcome, Packing, Sign};
use super::group::Group;
use super::known::Known;

/// So many packets keep a server busy: it takes some 50 us for each, and answers within a few
/// hundred.
const MOST_IN_FLIGHT: usize = 3;
/// How long one waits, at the most.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_micros(500);
/// After so many refusals in a row ...
const MOST_REFUSALS: u32 = 3;
/// ... so many groups go each by itself.
const APART: u32 = 1_000;

/// Groups that have not been said yet, in their order; of the present connection.
pub(super) struct Waiting {
    groups: VecDeque<Group>,
    bytes: usize,
    /// When the first of them came.
    since: Option<Instant>,
    longest: Duration,
    experience: Experience,
}

/// What came of sharing packets before.
#[derive(Default)]
struct Experience {
    /// Whether servers know such packets.
    writes: Known,
    lists: Known,
    /// Multis refused since the last one that was done.
    refusals: u32,
    /// So many groups more go by themselves.
    apart: u32,
}

impl Waiting {
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            groups: VecDeque::new(),
            bytes: 0,
            since: None,
            longest,
            experience: Experience::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Of all who wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn add(&mut self, group: Group) {
        self.bytes += group.bytes();
        self.groups.push_back(group);
    }

    /// They are to wait. Returns whether that is news.
    pub(super) fn begin_wait(&mut self) -> bool {
        let begins = self.since.is_none();
        self.since.get_or_insert_with(Instant::now);
        begins
    }

    /// For how long they may still wait, with so many packets in flight; `None`: not any longer.
    pub(super) fn may_wait(&self, in_flight: usize) -> Option<Duration> {
        if in_flight < MOST_IN_FLIGHT {
            return None;
        }
        let waited = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        self.longest.checked_sub(waited)
    }

    /// What is to be said together next, and how. `is_harmless`: a hang-up would cost nobody a lock.
    pub(super) fn next_batch(&mut self, is_harmless: bool) -> Option<(Vec<Group>, Packing)> {
        let mut batch = NextBatch::default();
        let taken = self.groups.iter().take_while(|group| batch.takes(group));
        let (count, bytes) = (taken.count(), batch.bytes);
        let groups: Vec<_> = self.groups.drain(..count).collect();
        self.bytes -= bytes;
        if self.groups.is_empty() {
            self.since = None;
        }
        let packing = match groups.as_slice() {
            [] => return None,
            [one] if !one.can_share_alone() => Packing::NONE,
            several => self.experience.packing(several.len(), is_harmless),
        };
        Some((groups, packing))
    }

    /// What came of packets on this connection.
    pub(super) fn note(&mut self, connection: u64, outcome: Outcome) {
        let experience = &mut self.experience;
        let each = [
            (&mut experience.writes, outcome.writes),
            (&mut experience.lists, outcome.lists),
        ];
        for (known, sign) in each {
            match sign {
                Sign::Nothing => {}
                Sign::Answered => known.answered(connection),
                Sign::Unknown => known.refused(Instant::now()),
                Sign::HungUp => {
                    known.hung_up(connection, Instant::now());
                }
            }
        }
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
    pub(super) fn take_all(&mut self) -> VecDeque<Group> {
        self.bytes = 0;
        self.since = None;
        std::mem::take(&mut self.groups)
    }
}

impl Experience {
    fn packing(&mut self, groups: usize, is_harmless: bool) -> Packing {
        if self.apart > 0 {
            let groups = u32::try_from(groups).unwrap_or(u32::MAX);
            self.apart = self.apart.saturating_sub(groups);
            return Packing::NONE;
        }
        let now = Instant::now();
        Packing {
            writes: self.writes.may_ask(now, || is_harmless),
            lists: self.lists.may_ask(now, || is_harmless),
        }
    }
}

/// What is said together next.
#[derive(Default)]
struct NextBatch<'a> {
    groups: usize,
    bytes: usize,
    /// In which it creates nodes.
    folders: HashSet<&'a str>,
}

impl<'a> NextBatch<'a> {
    /// Adds a group, if there is room for it. No transaction makes two contenders of one folder, as
    /// it is their fencing token.
    fn takes(&mut self, group: &'a Group) -> bool {
        let is_first_there = |folder| !self.folders.contains(folder);
        let fits = self.groups == 0
            || self.bytes + group.bytes() <= MOST_BYTES
                && group.folder().is_none_or(is_first_there);
        if fits {
            self.groups += 1;
            self.bytes += group.bytes();
            self.folders.extend(group.folder());
        }
        fits
    }
}
