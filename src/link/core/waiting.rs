//! Requests held briefly so that they can share a packet.
//!
//! While few packets of ours are in flight, whoever asks is sent at once. With [`MOST_IN_FLIGHT`],
//! the server is busy with them, and one more would wait there for its turn; so it waits here
//! instead, and others may join it. It goes when an answer makes room, and after [`LONGEST_WAIT`] at
//! the latest: where each answer takes long because the servers are far apart, or their disks slow,
//! nobody waits for another's.
//!
//! Pure: who asks brings the time.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::batch::{MOST_BYTES, Outcome, Packing, Sign};
use super::group::Group;
use super::known::Known;
use super::moment::Moment;

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
pub(in crate::link) struct Waiting {
    groups: VecDeque<Group>,
    bytes: usize,
    /// When the first of them came.
    since: Option<Moment>,
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
    pub(in crate::link) fn new(longest: Duration) -> Self {
        Self {
            groups: VecDeque::new(),
            bytes: 0,
            since: None,
            longest,
            experience: Experience::default(),
        }
    }

    pub(in crate::link) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Of all who wait.
    pub(in crate::link) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(in crate::link) fn add(&mut self, group: Group) {
        self.bytes += group.bytes();
        self.groups.push_back(group);
    }

    /// They are to wait. Returns whether that is news.
    pub(in crate::link) fn begin_wait(&mut self, now: Moment) -> bool {
        let begins = self.since.is_none();
        self.since.get_or_insert(now);
        begins
    }

    /// For how long they may still wait, with so many packets in flight; `None`: not any longer.
    pub(in crate::link) fn may_wait(&self, in_flight: usize, now: Moment) -> Option<Duration> {
        if in_flight < MOST_IN_FLIGHT {
            return None;
        }
        let since = self.since.unwrap_or(now);
        self.longest.checked_sub(now.since(since))
    }

    /// What is to be said together next, and how. `is_harmless`: a hang-up would cost nobody a lock.
    pub(in crate::link) fn next_batch(
        &mut self,
        is_harmless: bool,
        now: Moment,
    ) -> Option<(Vec<Group>, Packing)> {
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
            several => self.experience.packing(several.len(), is_harmless, now),
        };
        Some((groups, packing))
    }

    /// What came of packets on this connection.
    pub(in crate::link) fn note(&mut self, connection: u64, outcome: Outcome, now: Moment) {
        let experience = &mut self.experience;
        let each = [
            (&mut experience.writes, outcome.writes),
            (&mut experience.lists, outcome.lists),
        ];
        for (known, sign) in each {
            match sign {
                Sign::Nothing => {}
                Sign::Answered => known.answered(connection),
                Sign::Unknown => known.refused(now),
                Sign::HungUp => {
                    known.hung_up(connection, now);
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
    pub(in crate::link) fn take_all(&mut self) -> VecDeque<Group> {
        self.bytes = 0;
        self.since = None;
        std::mem::take(&mut self.groups)
    }
}

impl Experience {
    fn packing(&mut self, groups: usize, is_harmless: bool, now: Moment) -> Packing {
        if self.apart > 0 {
            let groups = u32::try_from(groups).unwrap_or(u32::MAX);
            self.apart = self.apart.saturating_sub(groups);
            return Packing::NONE;
        }
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
    folders: BTreeSet<&'a str>,
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::Arc;

    use zklock_protocol::{ANY_VERSION, Create, CreateForm, CreateMode, Request};

    use super::super::answer::{Answer, Completion};
    use super::*;

    struct Nobody;

    impl Completion for Nobody {
        fn completed(&self, _answers: Vec<Answer>) {}
    }

    fn now() -> Moment {
        Moment::from_nanos(1_000_000_000)
    }

    fn group(requests: &[Request]) -> Group {
        let group = Group::encode(requests, Arc::new(Nobody));
        group.unwrap_or_else(|_| panic!("short"))
    }

    fn delete() -> Group {
        let (path, version) = ("/a/n".to_owned(), ANY_VERSION);
        group(&[Request::Delete { path, version }])
    }

    fn create(folder: &str) -> Group {
        group(&[Request::Create(Create {
            form: CreateForm::Create2,
            path: format!("{folder}/n"),
            data: None,
            acl: Arc::default(),
            mode: CreateMode::EPHEMERAL_SEQUENTIAL,
            ttl_ms: -1,
        })])
    }

    fn waiting(groups: impl IntoIterator<Item = Group>) -> Waiting {
        let mut waiting = Waiting::new(LONGEST_WAIT);
        groups.into_iter().for_each(|group| waiting.add(group));
        waiting
    }

    /// The sizes of all batches, and whether their writes share packets.
    fn batches(waiting: &mut Waiting, now: Moment) -> Vec<(usize, bool)> {
        let next = || waiting.next_batch(true, now);
        let all = std::iter::from_fn(next);
        all.map(|(groups, packing)| (groups.len(), packing.writes))
            .collect()
    }

    #[test]
    fn nobody_waits_for_longer_than_the_longest_wait_whoever_comes() {
        let begun = now();
        let mut waiting = waiting([delete()]);
        assert_eq!(waiting.may_wait(MOST_IN_FLIGHT - 1, begun), None);
        let all = Some(LONGEST_WAIT);
        assert_eq!(waiting.may_wait(MOST_IN_FLIGHT, begun), all);
        assert!(waiting.begin_wait(begun));
        let later = begun.plus(LONGEST_WAIT / 2);
        waiting.add(delete());
        assert!(!waiting.begin_wait(later), "counts from the first");
        assert_eq!(
            waiting.may_wait(MOST_IN_FLIGHT, later),
            Some(LONGEST_WAIT / 2)
        );
        let end = begun.plus(LONGEST_WAIT);
        assert_eq!(waiting.may_wait(MOST_IN_FLIGHT, end), Some(Duration::ZERO));
        let over = end.plus(Duration::from_nanos(1));
        assert_eq!(waiting.may_wait(MOST_IN_FLIGHT, over), None);
        assert_eq!(batches(&mut waiting, over), [(2, true)]);
        assert_eq!(waiting.bytes(), 0);
        // The next one has all of its time.
        assert_eq!(waiting.may_wait(MOST_IN_FLIGHT, over), all);
    }

    /// A transaction is their fencing token.
    #[test]
    fn contenders_of_one_folder_are_never_batched() {
        let folders = ["/a", "/b", "/a", "/c", "/b"];
        let mut waiting = waiting(folders.map(create));
        let all = batches(&mut waiting, now());
        assert_eq!(all, [(2, true), (3, true)]);
    }

    #[test]
    fn one_caller_alone_shares_nothing() {
        let mut waiting = waiting([delete()]);
        assert_eq!(batches(&mut waiting, now()), [(1, false)]);
    }

    /// Each refusal costs all who shared the packet a second request.
    #[test]
    fn after_some_refusals_in_a_row_everybody_goes_alone_for_a_while() {
        let now = now();
        let mut waiting = waiting([]);
        let pair = |waiting: &mut Waiting| {
            waiting.add(delete());
            waiting.add(delete());
            batches(waiting, now)
        };
        let refused = Outcome {
            refused: true,
            ..Outcome::default()
        };
        let done = Outcome {
            done: true,
            ..Outcome::default()
        };
        for outcome in [refused, refused, done, refused, refused] {
            waiting.note(1, outcome, now);
            assert_eq!(pair(&mut waiting), [(2, true)]);
        }
        waiting.note(1, refused, now);
        for _ in 0..APART / 2 {
            assert_eq!(pair(&mut waiting), [(2, false)]);
        }
        assert_eq!(pair(&mut waiting), [(2, true)]);
    }

    /// A server that does not know a multi is asked for none, until it may have been replaced.
    #[test]
    fn what_a_server_does_not_know_is_not_sent_for_a_while() {
        const LONG: Duration = Duration::from_secs(3600);
        let now = now();
        let mut waiting = waiting([delete(), delete()]);
        let unknown = Outcome {
            writes: Sign::Unknown,
            ..Outcome::default()
        };
        waiting.note(1, unknown, now);
        assert_eq!(batches(&mut waiting, now), [(2, false)]);
        waiting.add(delete());
        waiting.add(delete());
        let relied_on = waiting.next_batch(false, now.plus(LONG));
        assert!(relied_on.is_some_and(|(_, packing)| !packing.writes));
        waiting.add(delete());
        waiting.add(delete());
        assert_eq!(batches(&mut waiting, now.plus(LONG)), [(2, true)]);
    }
}
