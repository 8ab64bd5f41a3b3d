use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;

use super::*;
use crate::znode::job::Periods;

const EVERY_MS: i64 = 1_000;

fn at(millis: i64) -> Moment {
    Moment::from_millis(millis).expect("in range")
}

fn periods() -> Times {
    let every = Duration::from_millis(1_000);
    Times::Periods(Periods::new(every, UNIX_EPOCH).expect("possible"))
}

fn terms() -> Terms {
    Terms {
        after_failure: Rerun::Again,
        after_death: Rerun::WhenTold,
        catch_up: 0,
        keep: 10,
    }
}

fn claim(id: u64) -> Claim {
    Claim {
        id: format!("run-{id}"),
        token: id,
        node: format!("lock-{id:010}"),
        who: Identity::current(UNIX_EPOCH),
    }
}

fn begun(record: &mut JobRecord, id: u64, now: i64, terms: &Terms) -> RunRecord {
    let ruling = record.begin(None, &claim(id), at(now), terms);
    assert_eq!(ruling, Ruling::Begin);
    record.last().expect("begun").clone()
}

fn period_of(run: &RunRecord) -> i64 {
    match run.occasion {
        Occasion::Period(number) => number,
        Occasion::Key(_) => panic!("a period"),
    }
}

#[test]
fn a_period_is_done_once() {
    let mut record = JobRecord::new(periods());
    let run = begun(&mut record, 1, 5_000, &terms());
    assert_eq!((period_of(&run), run.attempt, run.missed), (5, 1, 0));
    assert_eq!(record.end("run-1", &End::Done, at(5_100)), Ended::Now);
    assert_eq!(record.end("run-1", &End::Done, at(5_200)), Ended::Already);
    let ruling = record.begin(None, &claim(2), at(5_999), &terms());
    assert!(matches!(ruling, Ruling::Settled(run) if run.id == "run-1"));
    let run = begun(&mut record, 3, 6_000, &terms());
    assert_eq!((period_of(&run), run.missed), (6, 0));
}

/// A night of a machine whose clock is ahead, and then the nights before it.
#[test]
fn no_smaller_period_begins() {
    let mut record = JobRecord::new(periods());
    begun(&mut record, 1, 22_000, &terms());
    record.end("run-1", &End::Done, at(22_001));
    // One period behind is a clock at a border, and the greatest is done.
    let ruling = record.begin(None, &claim(2), at(21_999), &terms());
    assert!(matches!(ruling, Ruling::Settled(run) if run.id == "run-1"));
    let ruling = record.begin(None, &claim(3), at(20_999), &terms());
    let ahead = Ruling::Ahead {
        greatest: 22,
        clock: 20,
    };
    assert_eq!(ruling, ahead);
    // Until somebody says so.
    assert!(record.reset(at(20_999), &claim(3).who));
    assert!(record.runs().is_empty());
    assert_eq!(record.greatest, Some(20));
    let run = begun(&mut record, 4, 20_999, &terms());
    assert_eq!((period_of(&run), run.missed), (20, 0));
    assert!(
        !record.reset(at(20_999), &claim(3).who),
        "nothing to set back"
    );
}

/// Whoever wrote that, it is answered without a panic.
#[test]
fn the_first_period_of_all_was_begun() {
    let text = format!(
        "zklock-once 1\nperiods every_ms=1000 anchor=1970-01-01T00:00:00.000Z greatest={}\n",
        i64::MIN
    );
    let mut record: JobRecord = text.parse().expect("version 1");
    let run = begun(&mut record, 1, 5_000, &terms());
    assert_eq!((period_of(&run), run.missed), (5, i64::MAX.unsigned_abs()));
}

#[test]
fn missed_periods_are_told_or_caught_up() {
    let mut record = JobRecord::new(periods());
    begun(&mut record, 1, 1_000, &terms());
    record.end("run-1", &End::Done, at(1_001));
    let mut skipping = record.clone();
    let run = begun(&mut skipping, 2, 5_000, &terms());
    assert_eq!((period_of(&run), run.missed), (5, 3));
    let two = Terms {
        catch_up: 2,
        ..terms()
    };
    for (id, (period, missed)) in (2..).zip([(3, 1), (4, 0), (5, 0)]) {
        let run = begun(&mut record, id, 5_000, &two);
        assert_eq!((period_of(&run), run.missed), (period, missed));
        record.end(&format!("run-{id}"), &End::Done, at(5_001));
    }
    let ruling = record.begin(None, &claim(9), at(5_500), &two);
    assert!(matches!(ruling, Ruling::Settled(_)));
}

#[test]
fn what_follows_an_unsettled_run_is_chosen() {
    let mut record = JobRecord::new(periods());
    begun(&mut record, 1, 1_000, &terms());
    let failed = End::Failed(Some("disk full".to_owned()));
    assert_eq!(record.end("run-1", &failed, at(1_001)), Ended::Now);
    let run = begun(&mut record, 2, 1_100, &terms());
    assert_eq!((period_of(&run), run.attempt), (1, 2));
    // It dies, and the next one finds that.
    assert!(record.bury(at(1_200), "run-3", &[]));
    assert!(!record.bury(at(1_200), "run-3", &[]));
    assert_eq!(record.end("run-2", &End::Done, at(1_201)), Ended::NotOurs);
    let ruling = record.begin(None, &claim(3), at(1_200), &terms());
    assert!(matches!(ruling, Ruling::Unsettled(run) if run.state == RunState::Died));
    assert!(record.allow_again(None).is_some());
    let run = begun(&mut record, 4, 1_300, &terms());
    assert_eq!((period_of(&run), run.attempt), (1, 3));
    // The word was for that one attempt.
    record.bury(at(1_400), "run-5", &[]);
    let ruling = record.begin(None, &claim(5), at(1_400), &terms());
    assert!(matches!(ruling, Ruling::Unsettled(_)));
    // What is left behind of a period is not in the way of the next one.
    let run = begun(&mut record, 6, 2_000, &terms());
    assert_eq!((period_of(&run), run.attempt), (2, 1));
}

#[test]
fn an_unsettled_period_is_caught_up_before_those_after_it() {
    let terms = Terms {
        catch_up: 5,
        ..terms()
    };
    let mut record = JobRecord::new(periods());
    begun(&mut record, 1, 1_000, &terms);
    record.end("run-1", &End::Failed(None), at(1_001));
    let run = begun(&mut record, 2, 3_000, &terms);
    assert_eq!((period_of(&run), run.attempt, run.missed), (1, 2, 0));
    record.end("run-2", &End::Done, at(3_001));
    let run = begun(&mut record, 3, 3_000, &terms);
    assert_eq!((period_of(&run), run.attempt, run.missed), (2, 1, 0));
}

#[test]
fn who_lived_on_says_how_the_lock_was_lost() {
    let mut record = JobRecord::new(periods());
    begun(&mut record, 1, 1_000, &terms());
    record.bury(at(1_100), "other", &[]);
    let lost = [("run-1".to_owned(), Loss::Session)];
    assert!(record.bury(at(1_200), "mine", &lost));
    let run = record.last().expect("it is there");
    assert_eq!(run.state, RunState::SessionLost);
    assert_eq!(run.ended, Some(at(1_100)), "when it was found");
    assert!(!record.bury(at(1_300), "mine", &lost), "said once");
}

#[test]
fn a_run_that_nobody_got_may_be_run_again() {
    let terms = Terms {
        after_failure: Rerun::WhenTold,
        ..terms()
    };
    let mut record = JobRecord::new(periods());
    begun(&mut record, 1, 1_000, &terms);
    assert!(record.take_back("run-1", at(1_001)));
    assert!(!record.take_back("run-1", at(1_002)) && !record.take_back("run-9", at(1_002)));
    let run = begun(&mut record, 2, 1_100, &terms);
    assert_eq!((period_of(&run), run.attempt), (1, 2));
    // Another finds it dead before we are told.
    assert!(record.bury(at(1_200), "run-3", &[]));
    let lost = [("run-2".to_owned(), Loss::NotGivenOut)];
    assert!(record.bury(at(1_300), "run-4", &lost));
    assert!(!record.bury(at(1_400), "run-4", &lost), "said once");
    let run = begun(&mut record, 4, 1_500, &terms);
    assert_eq!((period_of(&run), run.attempt), (1, 3));
    record.end("run-4", &End::Done, at(1_600));
    assert!(!record.take_back("run-4", at(1_700)), "it is done");
}

#[test]
fn a_begin_of_ours_is_not_buried() {
    let mut record = JobRecord::new(periods());
    begun(&mut record, 1, 1_000, &terms());
    assert!(!record.bury(at(1_100), "run-1", &[]));
    assert!(record.open_run("run-1").is_some());
}

#[test]
fn keys_are_done_once_each_and_do_not_hinder_each_other() {
    let mut record = JobRecord::new(Times::Keys);
    let mut begin = |key: &str, id| record.begin(Some(key), &claim(id), at(0), &terms());
    assert_eq!(begin("a", 1), Ruling::Begin);
    assert_eq!(begin("b", 2), Ruling::Begin);
    record.end("run-1", &End::Done, at(1));
    record.bury(at(2), "run-3", &[]);
    let mut begin = |key: &str, id| record.begin(Some(key), &claim(id), at(2), &terms());
    assert!(matches!(begin("a", 3), Ruling::Settled(_)));
    assert!(matches!(begin("b", 3), Ruling::Unsettled(_)));
    assert_eq!(begin("c", 3), Ruling::Begin);
    assert!(record.done_key("a").is_some() && record.done_key("c").is_none());
    assert!(record.allow_again(Some("a")).is_none(), "it is done");
    assert!(record.allow_again(Some("b")).is_some());
    assert_eq!(
        record.begin(Some("b"), &claim(4), at(2), &terms()),
        Ruling::Begin
    );
}

#[test]
fn the_oldest_are_forgotten_and_never_the_open_one() {
    let mut record = JobRecord::new(Times::Keys);
    for id in 0..20 {
        let key = format!("key-{id}");
        assert_eq!(
            record.begin(Some(&key), &claim(id), at(0), &terms()),
            Ruling::Begin
        );
        record.end(&format!("run-{id}"), &End::Done, at(1));
    }
    assert_eq!(record.runs().len(), 10);
    assert_eq!(record.runs()[0].key(), Some("key-10"));
    // By size, too.
    let many = Terms {
        keep: 10_000,
        ..terms()
    };
    for id in 100..400 {
        let key = format!("{id}{}", " ".repeat(2_000));
        let ruling = record.begin(Some(&key), &claim(id), at(0), &many);
        assert_eq!(ruling, Ruling::Begin);
        record.end(&format!("run-{id}"), &End::Done, at(1));
        let size = record.to_string().len();
        assert!(size < MOST_BYTES + 1_000, "{size}");
    }
    assert!(record.runs().len() < 100);
    let huge = "x".repeat(MOST_BYTES);
    record.begin(Some(&huge), &claim(500), at(0), &many);
    assert_eq!(record.runs().len(), 1);
}

/// A job that fails every second, and one that was done before it.
#[test]
fn attempts_make_no_done_key_forgotten() {
    let mut record = JobRecord::new(Times::Keys);
    let mut begin = |key: &str, id, why: &str| {
        let ruling = record.begin(Some(key), &claim(id), at(0), &terms());
        let end = match key {
            "a" => End::Done,
            _ => End::Failed(Some(why.to_owned())),
        };
        let ended = record.end(&format!("run-{id}"), &end, at(1));
        (ruling, ended, record.clone())
    };
    begin("a", 1, "");
    for id in 2..100 {
        // Also by its size: "\u{20ac}" has three bytes, and 1,024 is no border of it.
        let (ruling, ended, record) = begin("b", id, &"\u{20ac}".repeat(200_000));
        assert_eq!((ruling, ended), (Ruling::Begin, Ended::Now));
        assert!(record.done_key("a").is_some(), "after {id} attempts");
        let last = record.last().expect("one");
        assert_eq!(u64::from(last.attempt), id - 1);
        assert_eq!(last.why().map(str::len), Some(1_023));
    }
    // As many keys as are kept, and then an attempt more of the last one: what came before it is there.
    for id in 100..108 {
        begin(&format!("key-{id}"), id, "");
    }
    let (ruling, _, record) = begin("key-107", 108, "");
    assert_eq!(ruling, Ruling::Begin);
    assert!(record.done_key("a").is_some(), "ten keys are kept");
    let keys: Vec<_> = record.runs().iter().filter_map(RunRecord::key).collect();
    assert_eq!((keys[0], keys.len()), ("a", 11));
    assert_eq!(keys[9..], ["key-107", "key-107"]);
}

#[test]
fn golden_text() {
    let text = "zklock-once 1\n\
        periods every_ms=86400000 anchor=1970-01-01T00:00:00.000Z greatest=20779\n\
        reset at=2026-11-20T00:00:00.000Z from=99999 to=20777 host=ops pid=1 thread=main since=7\n\
        run period=20779 attempt=2 missed=1 state=failed started=2026-11-22T00:00:00.398Z \
        ended=2026-11-22T00:00:01.398Z why=disk%20full%0A100%25 again=yes token=4294967377 \
        node=_c_7b-lock-0000000009 id=0c41 host=web-2 pid=771 thread=main since=1795305600385\n";
    let record: JobRecord = text.parse().expect("version 1");
    assert_eq!(record.to_string(), text);
    let run = record.last().expect("one");
    assert_eq!(run.why(), Some("disk full\n100%"));
    assert_eq!(
        run.period().map(|period| period.to_string()).as_deref(),
        Some("2026-11-22T00:00:00.000Z")
    );
    let shown = run.to_string();
    assert!(!shown.contains('\n'), "{shown}");
    let text = "zklock-once 1\nkeys\n\
        run key=batch%2017 attempt=1 state=started started=2026-11-22T00:00:00.398Z token=1 \
        node=n id=i host=h pid=1 thread=t since=0\n";
    let record: JobRecord = text.parse().expect("version 1");
    assert_eq!(record.to_string(), text);
    assert_eq!(record.last().and_then(RunRecord::key), Some("batch 17"));
}

#[test]
fn what_is_not_understood_is_an_error_that_says_where() {
    let run = "run key=a attempt=1 state=done started=2026-11-22T00:00:00.398Z token=1 node=n id=i \
               host=h pid=1 thread=t since=0";
    let broken = |from: &str, to: &str| {
        assert!(run.contains(from), "{from}");
        format!("zklock-once 1\nkeys\n{}\n", run.replace(from, to))
    };
    let of_a_period = run.replace("key=a attempt=1", "period=1 attempt=1 missed=0");
    for (text, part) in [
        (
            format!(
                "zklock-once 1\nperiods every_ms=5 anchor=1970-01-01T00:00:00.000Z\n{of_a_period}\n"
            ),
            "line 2 of the record: greatest= is missing",
        ),
        (String::new(), "no record of a job"),
        ("hello\n".to_owned(), "no record of a job"),
        ("zklock-once 2\nkeys\n".to_owned(), "version \"2\""),
        ("zklock-once 1\n".to_owned(), "line"),
        ("zklock-once 1\nkeys".to_owned(), "no end"),
        ("zklock-once 1\nkeys\n\n".to_owned(), "line 3"),
        (
            "zklock-once 1\nperiods every_ms=0 anchor=1970-01-01T00:00:00.000Z\n".to_owned(),
            "line 2 of the record: every_ms=0",
        ),
        (
            broken("state=done", "state=maybe"),
            "line 3 of the record: state=maybe",
        ),
        (broken("attempt=1", "attempt=01"), "attempt=01"),
        (broken("token=1", "token=-1"), "token=-1"),
        (broken("token=1 ", ""), "token= is missing"),
        (broken("id=i", "id=i id=i"), "id= is twice"),
        (
            broken("id=i", "id=i new=1"),
            "new= is twice, or not of version 1",
        ),
        (broken("pid=1", "pid=x"), "nobody"),
        (broken("id=i", "idi"), "not NAME=VALUE"),
        (broken("run ", "job "), "does not begin with"),
    ] {
        let error = text.parse::<JobRecord>().expect_err(&text);
        assert!(error.contains(part), "{error}");
    }
}

/// What somebody does next, in the life of a job.
#[derive(Clone, Debug)]
enum Deed {
    /// The servers' clock goes on by this, or back.
    Clock(i64),
    /// Somebody else takes the lock and asks; who had it before is gone.
    Begin,
    Done,
    Failed,
    /// The holder is killed.
    Dies,
    /// It loses its session, lives on, and comes again.
    Lost,
    AllowAgain,
    /// The record is read again by a program of another build.
    Reread,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        4 => (0..3 * EVERY_MS).prop_map(Deed::Clock),
        1 => (-3 * EVERY_MS..0).prop_map(Deed::Clock),
        6 => Just(Deed::Begin),
        4 => Just(Deed::Done),
        1 => Just(Deed::Failed),
        1 => Just(Deed::Dies),
        1 => Just(Deed::Lost),
        1 => Just(Deed::AllowAgain),
        1 => Just(Deed::Reread),
    ];
    proptest::collection::vec(deed, 0..120)
}

/// A job's whole life against what was promised of it, in words of its own.
fn live(deeds: &[Deed], terms: &Terms, keys: bool) {
    let mut record = JobRecord::new(if keys { Times::Keys } else { periods() });
    let mut now = 1_000_000;
    let mut running: Option<(String, String)> = None;
    let mut lost = Vec::new();
    let mut ends: HashMap<String, &str> = HashMap::new();
    let mut greatest: Option<i64> = None;
    let mut allowed: HashSet<String> = HashSet::new();
    for (number, deed) in (1..).zip(deeds) {
        let label = |record: &JobRecord| record.last().map(|run| run.occasion.to_string());
        match deed {
            Deed::Clock(by) => now += by,
            Deed::Reread => record = record.to_string().parse().expect("written by us"),
            Deed::Dies => {
                if let Some((_, of)) = running.take() {
                    ends.insert(of, "died");
                }
            }
            Deed::Lost => {
                if let Some((id, of)) = running.take() {
                    ends.insert(of, "died");
                    lost.push((id, Loss::Session));
                }
            }
            Deed::Done | Deed::Failed => {
                if let Some((id, of)) = running.take() {
                    let (end, word) = match deed {
                        Deed::Done => (End::Done, "done"),
                        _ => (End::Failed(None), "failed"),
                    };
                    assert_eq!(record.end(&id, &end, at(now)), Ended::Now);
                    ends.insert(of, word);
                }
            }
            Deed::AllowAgain => {
                // It takes the lock, as a run does.
                if running.is_none() {
                    record.bury(at(now), "-", &lost);
                    let of_last = label(&record);
                    let key = keys.then(|| record.last().and_then(RunRecord::key));
                    let key = key.flatten().map(str::to_owned);
                    if record.allow_again(key.as_deref()).is_some() {
                        allowed.extend(of_last);
                    }
                }
            }
            Deed::Begin => {
                if running.is_some() {
                    continue;
                }
                let claim = claim(number);
                let key = format!("{}", now / EVERY_MS);
                let key = keys.then_some(key.as_str());
                record.bury(at(now), &claim.id, &lost);
                assert!(
                    record
                        .runs()
                        .iter()
                        .all(|run| run.state != RunState::Running)
                );
                match record.begin(key, &claim, at(now), terms) {
                    Ruling::Begin => {
                        let of = label(&record).expect("begun");
                        let run = record.last().expect("begun");
                        let before = ends.get(&of).copied();
                        let is_allowed = allowed.remove(&of);
                        match before {
                            None => assert_eq!(run.attempt, 1),
                            Some("failed") => {
                                assert!(is_allowed || terms.after_failure == Rerun::Again);
                            }
                            Some("died") => {
                                assert!(is_allowed || terms.after_death == Rerun::Again);
                            }
                            Some(end) => panic!("{of} was {end}, and begins again"),
                        }
                        if !keys {
                            let period = period_of(run);
                            let clock = now / EVERY_MS;
                            if let Some(greatest) = greatest {
                                assert!(period >= greatest);
                                assert!(period <= clock.max(greatest));
                                let next = greatest + 1;
                                let expected = u64::try_from(period - next).unwrap_or(0);
                                assert_eq!(run.missed, expected, "each miss is told once");
                                let caught_up = clock - period <= terms.catch_up.into();
                                assert!(caught_up || period == greatest);
                            }
                            greatest = Some(period);
                        }
                        assert_eq!(run.started, at(now));
                        running = Some((claim.id, of));
                    }
                    Ruling::Settled(run) => {
                        assert_eq!(ends.get(&run.occasion.to_string()), Some(&"done"));
                    }
                    Ruling::Unsettled(run) => {
                        let end = ends.get(&run.occasion.to_string()).copied();
                        let rerun = match end {
                            Some("failed") => terms.after_failure,
                            _ => terms.after_death,
                        };
                        assert_eq!(rerun, Rerun::WhenTold, "{end:?}");
                    }
                    Ruling::Ahead {
                        greatest: kept,
                        clock,
                    } => {
                        assert_eq!(Some(kept), greatest);
                        assert!(clock < kept - 1);
                    }
                }
            }
        }
        let kept: HashSet<_> = record.runs().iter().map(|run| &run.occasion).collect();
        assert!(kept.len() <= terms.keep && record.runs().len() <= terms.keep + 1);
        let open = record
            .runs()
            .iter()
            .filter(|run| run.state == RunState::Running);
        assert!(open.count() <= 1);
    }
}

fn any_rerun() -> impl Strategy<Value = Rerun> {
    prop_oneof![Just(Rerun::Again), Just(Rerun::WhenTold)]
}

proptest! {
    #[test]
    fn no_period_is_done_twice_and_each_miss_and_death_is_named(
        deeds in deeds(),
        after_failure in any_rerun(),
        after_death in any_rerun(),
        catch_up in 0..4_u32,
        keep in 1..20_usize,
    ) {
        let terms = Terms { after_failure, after_death, catch_up, keep };
        live(&deeds, &terms, false);
    }

    /// As many are kept as can come.
    #[test]
    fn no_key_is_done_twice(
        deeds in deeds(),
        after_failure in any_rerun(),
        after_death in any_rerun(),
    ) {
        let terms = Terms { after_failure, after_death, catch_up: 0, keep: 200 };
        live(&deeds, &terms, true);
    }

    #[test]
    fn text_round_trip(key: String, why: Option<String>, id: String, token: u64, since in 0..1_u64 << 50) {
        let mut record = JobRecord::new(Times::Keys);
        let since: SystemTime = UNIX_EPOCH + Duration::from_millis(since);
        let claim = Claim { id: id.clone(), token, node: key.clone(), who: Identity::current(since) };
        record.begin(Some(&key), &claim, at(5), &terms());
        record.end(&id, &End::Failed(why), at(6));
        prop_assert_eq!(record.to_string().parse(), Ok(record));
    }

    #[test]
    fn reading_never_panics(text: String, near in "zklock-once 1\n(keys|periods every_ms=5 anchor=1970-01-01T00:00:00.000Z)\n(run [a-z]{1,6}=[0-9a-z%=]{0,5}( [a-z]{1,6}=[0-9a-z%=]{0,5}){0,9}\n){0,3}") {
        let _ = text.parse::<JobRecord>();
        if let Ok(record) = near.parse::<JobRecord>() {
            prop_assert_eq!(record.to_string().parse(), Ok(record));
        }
    }
}
