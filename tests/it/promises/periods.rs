//! A thousand periods of a job, ten processes, and a nemesis: no two runs at once, none of what was done,
//! and every miss and death named in the record.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use testbed::{Direction, Proxy, Puppet, process};
use zklock::{Client, OncePer, RunRecord, RunState};

use crate::fixtures::{T, client, server};
use crate::puppet;

const PATH: &str = "/promises/periods";
const EVERY: Duration = Duration::from_millis(30);
const PERIODS: i64 = 1_000;
const PROCESSES: usize = 10;

/// One process, behind what does it harm.
struct Place {
    proxy: Proxy,
    puppet: Puppet,
}

impl Place {
    fn start(until: i64, history: &Path) -> Self {
        let proxy = Proxy::start(server().addr());
        let puppet = Self::puppet(&proxy, until, history);
        Self { proxy, puppet }
    }

    fn puppet(proxy: &Proxy, until: i64, history: &Path) -> Puppet {
        let mut puppet = puppet::start(&proxy.connect_string(), PATH);
        let (every, history) = (EVERY.as_millis(), history.display());
        puppet.command(&format!("jobs {every} {until} {history}"));
        puppet
    }
}

/// The runs that the record has had, each as it was seen last, by token: each run has one of its own.
#[derive(Default)]
struct Seen(BTreeMap<u64, RunRecord>);

impl Seen {
    /// Returns the greatest period.
    fn look(&mut self, client: &Client) -> Option<i64> {
        let record = OncePer::record_at(client, PATH).expect("readable")?;
        for run in record.runs() {
            self.0.insert(run.fencing_token().as_u64(), run.clone());
        }
        record.greatest_period().map(|period| period.number())
    }
}

fn number(run: &RunRecord) -> i64 {
    run.period().expect("of periods").number()
}

#[test]
fn a_thousand_periods_are_run_once_each_or_missed_by_name() {
    let folder = tempfile::tempdir().expect("a place for the history");
    let history = folder.path().join("history");
    fs::write(&history, "").expect("a place for the history");
    let client = client();
    let mut seen = Seen::default();
    let first = {
        let job = OncePer::new(&client, PATH, EVERY).expect("good");
        match job.begin().expect("free") {
            zklock::Begun::Run(run) => {
                let first = number(run.record());
                run.done().expect("held");
                first
            }
            zklock::Begun::Done(before) => panic!("done: {before}"),
        }
    };
    let until = first + PERIODS;
    let mut places: Vec<_> = (0..PROCESSES)
        .map(|_| Place::start(until, &history))
        .collect();
    harm(&mut places, until, &history, &client, &mut seen);
    for place in &mut places {
        assert_eq!(place.puppet.answer(), "ok");
    }
    let greatest = seen.look(&client).expect("begun");
    assert!(greatest >= until);
    let history = fs::read_to_string(&history).expect("written");
    let events = Event::all(&history);
    judge_the_record(&seen, first);
    judge_the_history(&events, &seen);
}

/// The place whose run is open, and stays open, as its process was stopped.
fn catch_a_runner(places: &[Place], client: &Client) -> Option<usize> {
    let open_run = || {
        let record = OncePer::record_at(client, PATH).expect("readable")?;
        let open = record.last().filter(|run| run.state() == RunState::Running);
        open.cloned()
    };
    let run = open_run()?;
    let pid = run.who().process_id();
    let at = places.iter().position(|place| place.puppet.pid() == pid)?;
    process::stop(pid);
    let still = open_run().is_some_and(|open| open.fencing_token() == run.fencing_token());
    if !still {
        process::cont(pid);
    }
    still.then_some(at)
}

/// Kills, stops and cuts, in the middle of a run, until the last period was begun.
fn harm(places: &mut [Place], until: i64, history: &Path, client: &Client, seen: &mut Seen) {
    let mut rounds = 0_usize;
    let mut next = Instant::now();
    let mut stopped: Option<(usize, Instant)> = None;
    loop {
        if seen.look(client).is_some_and(|greatest| greatest >= until) {
            break;
        }
        if let Some((victim, _)) = stopped.take_if(|(_, until)| *until <= Instant::now()) {
            process::cont(places[victim].puppet.pid());
            places[victim].proxy.heal();
        }
        if Instant::now() >= next
            && stopped.is_none()
            && let Some(victim) = catch_a_runner(places, client)
        {
            next = Instant::now() + Duration::from_secs(1);
            let place = &mut places[victim];
            match rounds % 4 {
                0 => {
                    process::kill(place.puppet.pid());
                    place.puppet = Place::puppet(&place.proxy, until, history);
                }
                1 => {
                    place.proxy.reset_all();
                    process::cont(place.puppet.pid());
                }
                2 => stopped = Some((victim, Instant::now() + T + T / 4)),
                _ => {
                    place.proxy.black_hole(Direction::ToServer);
                    process::cont(place.puppet.pid());
                    stopped = Some((victim, Instant::now() + T + T / 4));
                }
            }
            rounds += 1;
        }
        // The pace of the looks.
        std::thread::sleep(Duration::from_millis(5));
    }
    if let Some((victim, _)) = stopped {
        process::cont(places[victim].puppet.pid());
        places[victim].proxy.heal();
    }
    assert!(rounds >= 4, "it went by before much was done to it");
}

/// By the record alone: periods rise, gaps are told, and nothing follows what was done.
fn judge_the_record(seen: &Seen, first: i64) {
    let mut greatest = first;
    let mut ends: HashMap<i64, RunState> = HashMap::new();
    let mut missed = 0;
    for run in seen.0.values() {
        let number = number(run);
        assert!(number >= greatest, "period {number} began after {greatest}");
        match ends.get(&number) {
            None => {
                assert_eq!(run.attempt(), 1, "{run}");
                let gap = u64::try_from(number - greatest - 1).unwrap_or(0);
                assert_eq!(run.missed(), gap, "{run}");
                missed += gap;
            }
            Some(RunState::Done) => panic!("run again: {run}"),
            Some(RunState::Running) => panic!("while another ran: {run}"),
            Some(_) => assert!(run.attempt() > 1, "{run}"),
        }
        ends.insert(number, run.state());
        greatest = number;
    }
    let count = |state| seen.0.values().filter(|run| run.state() == state).count();
    println!(
        "{} runs of {} periods, {missed} missed: {} done, {} failed, {} died, {} lost their session",
        seen.0.len(),
        ends.len(),
        count(RunState::Done),
        count(RunState::Failed),
        count(RunState::Died),
        count(RunState::SessionLost),
    );
    assert_eq!(count(RunState::Running), 0, "all have ended");
    assert!(count(RunState::Done) > 100, "the machine was too slow");
    let died = count(RunState::Died) + count(RunState::SessionLost);
    assert!(died >= 3 && missed > 0, "no harm was done");
}

struct Event {
    what: String,
    period: i64,
    token: u64,
    nanos: u128,
}

impl Event {
    fn all(history: &str) -> Vec<Self> {
        let each = history.lines().map(|line| {
            let mut words = line.split(' ');
            let mut next = || words.next().expect("four words");
            Self {
                what: next().to_owned(),
                period: next().parse().expect("a number"),
                token: next().parse().expect("a number"),
                nanos: next().parse().expect("a number"),
            }
        });
        each.collect()
    }
}

/// What the processes say they did, beside the record.
fn judge_the_history(events: &[Event], seen: &Seen) {
    let mut done = HashSet::new();
    let mut spans: HashMap<u64, (u128, u128)> = HashMap::new();
    for event in events {
        let run = seen.0.get(&event.token);
        let run = run.unwrap_or_else(|| panic!("not in the record: {}", event.token));
        assert_eq!(number(run), event.period);
        match event.what.as_str() {
            "began" => drop(spans.insert(event.token, (event.nanos, event.nanos))),
            "held" => spans.get_mut(&event.token).expect("it began").1 = event.nanos,
            "done" => {
                assert!(done.insert(event.period), "done twice: {run}");
                assert_eq!(run.state(), RunState::Done, "{run}");
            }
            // A drop says nothing when it could not write that.
            "failed" => assert!(run.state().is_unsettled(), "{run}"),
            what => panic!("{what}"),
        }
    }
    // What is not told to have ended well is named by its state.
    for run in seen.0.values() {
        if spans.contains_key(&run.fencing_token().as_u64()) {
            assert_ne!(run.state(), RunState::Running, "{run}");
        }
    }
    let mut spans: Vec<_> = spans.into_values().collect();
    spans.sort_unstable();
    for pair in spans.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two runs at once");
    }
}
