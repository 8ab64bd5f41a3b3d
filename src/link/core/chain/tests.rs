use proptest::prelude::*;

use super::*;

/// M of the tests, in nanoseconds; a group is 1,000 of them.
const M: u64 = 16_000;
const BEGIN: u64 = 1_000_000;

fn at(nanos: u64) -> Moment {
    Moment::from_nanos(BEGIN + nanos)
}

fn intervals() -> ProbeIntervals {
    ProbeIntervals {
        ping_within: Duration::from_nanos(M),
        probe_after: Duration::from_nanos(M / 4),
        patience: Duration::from_nanos(M / 2),
    }
}

/// The rule as it is written down, over a log of all answers: (kind, s, r).
#[derive(Default)]
struct Log(Vec<(Kind, Moment, Moment)>);

impl Log {
    /// What the answer that was logged last shows, with `m` for M.
    fn bases(&self, m: u64) -> Bases {
        let &(kind, s3, _) = self.0.last().expect("something was answered");
        let m = Duration::from_nanos(m);
        let of = |wanted: bool| {
            let seconds = self
                .0
                .iter()
                .filter(|two| two.0 != Kind::Read && two.2 <= s3);
            let confirmed = seconds
                .flat_map(|two| self.0.iter().filter(move |one| one.2.plus(m) <= two.1))
                .map(|one| one.1)
                .chain([at(0)])
                .max();
            confirmed.filter(|_| wanted)
        };
        Bases {
            assumed: of(kind != Kind::Read),
            proven: of(kind == Kind::Write),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send(Kind),
    /// The oldest unanswered request is answered; or the one that is so many behind it.
    Answer(usize),
    Fail,
}

fn histories(pause: std::ops::Range<u64>) -> impl Strategy<Value = Vec<(u64, Step)>> {
    let kind = prop_oneof![
        2 => Just(Kind::Read),
        1 => Just(Kind::Sync),
        2 => Just(Kind::Write),
    ];
    let step = prop_oneof![
        10 => kind.prop_map(Step::Send),
        9 => Just(Step::Answer(0)),
        1 => (0..3usize).prop_map(Step::Answer),
        1 => Just(Step::Fail),
    ];
    prop::collection::vec((pause, step), 0..120)
}

/// Plays a history against the chain and the log, and hands both results of each answer to `check`.
fn play(
    history: Vec<(u64, Step)>,
    mut check: impl FnMut(Bases, &Log) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let mut chain = Chain::new(intervals(), Opening::Resumed, at(0));
    let mut log = Log::default();
    let mut in_flight = VecDeque::new();
    let mut now = 0;
    for (pause, step) in history {
        now += pause;
        match step {
            Step::Send(kind) => in_flight.push_back(chain.sent(kind, at(now))),
            Step::Answer(behind) => {
                let index = behind.min(in_flight.len().saturating_sub(1));
                if let Some(sent) = in_flight.remove(index) {
                    let bases = chain.answered(sent, at(now));
                    log.0.push((sent.kind, sent.at, at(now)));
                    check(bases, &log)?;
                }
            }
            Step::Fail => drop(in_flight.pop_front()),
        }
        prop_assert!(chain.young.len() <= GROUPS_MOST);
    }
    Ok(())
}

proptest! {
    /// Answers at least a group apart, as in quiet use: exactly the rule.
    #[test]
    fn is_the_rule_for_answers_that_are_apart(history in histories(1_000..9_000)) {
        play(history, |bases, log| {
            prop_assert_eq!(bases, log.bases(M));
            Ok(())
        })?;
    }

    /// Any traffic: what it says is proved by the rule, and is no older than what the rule proves
    /// with an M that is longer by one group.
    #[test]
    fn is_never_ahead_of_the_rule_and_hardly_behind(
        history in histories(1..1_500),
    ) {
        play(history, |bases, log| {
            let (least, most) = (log.bases(M + M / 16), log.bases(M));
            prop_assert!(least.assumed <= bases.assumed && bases.assumed <= most.assumed);
            prop_assert!(least.proven <= bases.proven && bases.proven <= most.proven);
            Ok(())
        })?;
    }
}

/// One whole chain at the exact bounds, and each step one nanosecond short.
#[test]
fn takes_three_steps_each_at_its_bound() {
    let base = |short_of_m: u64| {
        let mut chain = Chain::new(intervals(), Opening::Created, at(0));
        let one = chain.sent(Kind::Read, at(10));
        assert_eq!(chain.answered(one, at(20)), Bases::default());
        // A nanosecond too early for a (2), and sent before the answer to (2), so no (3).
        let early = chain.sent(Kind::Write, at(20 + M - 1));
        let two = chain.sent(Kind::Sync, at(20 + M - short_of_m));
        assert_eq!(chain.answered(early, at(29 + M)).proven, Some(at(0)));
        assert_eq!(chain.answered(two, at(30 + M)).assumed, Some(at(0)));
        let three = chain.sent(Kind::Write, at(30 + M));
        chain.answered(three, at(40 + M))
    };
    let whole = Bases {
        assumed: Some(at(10)),
        proven: Some(at(10)),
    };
    assert_eq!(base(0), whole);
    assert_eq!(base(1).proven, Some(at(0)));
}

#[test]
fn a_sync_proves_nothing_until_a_write_is_answered() {
    let mut chain = Chain::new(intervals(), Opening::Resumed, at(0));
    let sync = chain.sent(Kind::Sync, at(1));
    let assumed = chain.answered(sync, at(2));
    assert_eq!((assumed.assumed, assumed.proven), (Some(at(0)), None));
    let write = chain.sent(Kind::Write, at(3));
    assert_eq!(chain.answered(write, at(4)).proven, Some(at(0)));
}

#[test]
fn a_moment_that_is_told_late_counts_as_the_latest() {
    let mut chain = Chain::new(intervals(), Opening::Created, at(0));
    let one = chain.sent(Kind::Read, at(10));
    chain.answered(one, at(20));
    assert_eq!(chain.sent(Kind::Read, at(5)).at, at(20));
}

/// However much is sent in however short a time.
#[test]
fn a_flood_takes_no_more_room() {
    let mut chain = Chain::new(intervals(), Opening::Created, at(0));
    for now in 0..M * 4 {
        let read = chain.sent(Kind::Read, at(now));
        chain.answered(read, at(now));
        assert!(chain.young.len() <= GROUPS_MOST);
    }
    assert!(chain.young.len() >= GROUPS_MOST - 2, "the groups are used");
}

#[test]
fn traffic_of_its_kind_does_for_a_probe() {
    let due = |chain: &Chain, writes| {
        let probe = chain.next_probe(writes);
        (probe.kind, probe.due)
    };
    let q = M / 4;
    let mut chain = Chain::new(intervals(), Opening::Created, at(0));
    assert_eq!(due(&chain, true), (Kind::Write, at(q)));
    chain.sent(Kind::Read, at(10));
    assert_eq!(due(&chain, false), (Kind::Sync, at(q)));
    chain.sent(Kind::Sync, at(20));
    assert_eq!(due(&chain, false), (Kind::Sync, at(20 + q)));
    assert_eq!(due(&chain, true), (Kind::Write, at(q)));
    chain.sent(Kind::Write, at(30));
    assert_eq!(due(&chain, false), (Kind::Sync, at(30 + q)));
    assert_eq!(due(&chain, true), (Kind::Write, at(30 + q)));
}

#[test]
fn after_a_resume_a_probe_that_writes_is_due_at_once() {
    let chain = Chain::new(intervals(), Opening::Resumed, at(0));
    assert_eq!(chain.next_probe(true).due, at(0));
    assert_eq!(chain.next_probe(false).due, at(M / 4));
}

#[test]
fn m_follows_from_the_tick() {
    let m = |timeout, tick: Option<u64>| {
        let tick = tick.map(Duration::from_millis);
        ProbeIntervals::of(Duration::from_millis(timeout), tick).ping_within
    };
    let millis = Duration::from_millis;
    assert_eq!(m(12_000, None), millis(4_000));
    assert_eq!(m(12_000, Some(2_000)), millis(2_000));
    // Two ticks, the least that servers grant by default: as if it were not known.
    assert_eq!(m(12_000, Some(6_000)), millis(4_000));
    // Less than two ticks: then a third is too little.
    assert_eq!(m(12_000, Some(9_000)), millis(6_000));
    // Whatever it is, a PING may be late by a sixth of a tick.
    for tick in 1..=12_000 {
        let half = Duration::from_millis(tick) / 2;
        assert!(m(12_000, Some(tick)) >= half + half / 3, "{tick} ms");
    }
}

/// A server with the usual tick grants 4 s at the least, unless its `minSessionTimeout` was
/// lowered; then M may be below the distance of the PINGs, and nothing tells a client so.
#[test]
fn a_timeout_that_may_be_less_than_two_ticks_is_doubted() {
    let doubt = |timeout, tick: Option<u64>| {
        let tick = tick.map(Duration::from_millis);
        ProbeIntervals::doubt(Duration::from_millis(timeout), tick)
    };
    assert_eq!(doubt(4_000, None), None);
    let said = doubt(3_999, None).expect("the tick may be 2 s");
    assert!(
        said.contains("3.999s") && said.contains("tick_time"),
        "{said}"
    );
    // It is known to be shorter, or longer.
    assert_eq!(doubt(1_000, Some(500)), None);
    let said = doubt(5_999, Some(3_000)).expect("less than two ticks");
    assert!(said.contains("minSessionTimeout"), "{said}");
}

/// Nothing but probes, late by `late` each, answered after `trip`: how old the proven base becomes
/// at the least and at the most, once the chain is under way.
fn ages_in_quiet_use(late: u64, trip: u64) -> (u64, u64) {
    let mut chain = Chain::new(intervals(), Opening::Created, at(0));
    let (mut base, mut youngest, mut oldest) = (at(0), u64::MAX, 0);
    for round in 0..40 {
        let sent = chain.next_probe(true).due.nanos() + late;
        let probe = chain.sent(Kind::Write, Moment::from_nanos(sent));
        let answered = Moment::from_nanos(sent + trip);
        let before = answered.nanos() - base.nanos();
        base = base.max(chain.answered(probe, answered).proven.expect("a write"));
        if round > 10 {
            youngest = youngest.min(answered.nanos() - base.nanos());
            oldest = oldest.max(before);
        }
    }
    (youngest, oldest)
}

/// At q = M/4 the round trip decides which; the intervals of the library keeps clear of that.
#[test]
fn the_base_is_five_to_seven_probes_old_in_quiet_use() {
    let q = M / 4;
    // Four probes later is late enough, if they are late enough; else the fifth.
    assert_eq!(
        ages_in_quiet_use(10, 10),
        (5 * (q + 10) + 10, 6 * (q + 10) + 10)
    );
    assert_eq!(ages_in_quiet_use(0, 10), (6 * q + 10, 7 * q + 10));
}
