//! Periods by a clock that is moved. On the server for tests, which has such a clock, also where the others
//! are Apache's.

use std::time::{Duration, SystemTime};

use testbed::raw::RawSession;
use zklock::{Begun, Client, JobRun, OncePer, Rerun, RunState};
use zklock_test::Server;

const HOUR: Duration = Duration::from_secs(3600);
const PATH: &str = "/jobs/hourly";

fn start() -> (Server, Client) {
    let server = Server::start().expect("a port");
    let client = connect(&server);
    (server, client)
}

fn connect(server: &Server) -> Client {
    Client::connect(&server.connect_string()).expect("it serves")
}

fn job(client: &Client) -> OncePer {
    OncePer::new(client, PATH, HOUR).expect("good")
}

#[track_caller]
fn run(job: &OncePer) -> JobRun {
    match job.begin().expect("free") {
        Begun::Run(run) => run,
        Begun::Done(before) => panic!("done: {before}"),
    }
}

#[track_caller]
fn number(run: &JobRun) -> i64 {
    run.period().expect("built with a length").number()
}

#[track_caller]
fn is_done(job: &OncePer) -> bool {
    matches!(job.begin(), Ok(Begun::Done(_)))
}

/// Hours pass at the servers while the clocks of this machine, and of all who ask, stand: it is
/// theirs that counts.
#[test]
fn the_servers_clock_says_which_period_it_is() {
    let (server, client) = start();
    let job = job(&client);
    let first = run(&job);
    let before = number(&first);
    assert_eq!(first.missed(), 0);
    first.done().expect("held");
    assert!(is_done(&job));
    server.advance_clock(HOUR);
    let second = run(&job);
    assert_eq!((number(&second) - before, second.missed()), (1, 0));
    assert!(second.record().started() > SystemTime::now() + HOUR / 2);
    let since = second.record().who().since();
    assert!(
        since < SystemTime::now() + HOUR / 2,
        "the runner's own clock"
    );
    second.done().expect("held");
    server.advance_clock(4 * HOUR);
    let third = run(&job);
    assert_eq!((number(&third) - before, third.missed()), (5, 3));
    third.done().expect("held");
    let record = job.record().expect("readable").expect("there");
    let missed: u64 = record.runs().iter().map(zklock::RunRecord::missed).sum();
    assert_eq!((record.runs().len(), missed), (3, 3));
    assert_eq!(
        record.greatest_period().map(|period| period.number()),
        Some(before + 5)
    );
}

#[test]
fn missed_periods_are_caught_up_in_their_order() {
    let (server, client) = start();
    let job = OncePer::builder(&client, PATH).every(HOUR).catch_up(3);
    let job = job.build().expect("good");
    let first = run(&job);
    let before = number(&first);
    first.done().expect("held");
    server.advance_clock(6 * HOUR);
    let mut caught_up = Vec::new();
    while let Begun::Run(run) = job.begin().expect("free") {
        caught_up.push((number(&run) - before, run.missed()));
        run.done().expect("held");
    }
    assert_eq!(caught_up, [(3, 2), (4, 0), (5, 0), (6, 0)]);
}

/// The clock of a new leader is hours behind, as far as the record can tell: somebody's clock was ahead.
#[test]
fn a_record_ahead_of_the_clock_is_told_and_reset() {
    let (server, client) = start();
    server.advance_clock(1000 * HOUR);
    run(&job(&client)).done().expect("held");
    let record = server.node(&format!("{PATH}/record")).expect("there").data;
    // Another ensemble with the right clock, and that record.
    let (right, client) = start();
    let job = job(&client);
    run(&job).done().expect("held");
    let now = job.record().expect("readable").expect("there");
    let now = now.greatest_period().expect("begun").number();
    let mut anybody =
        RawSession::open(right.address(), Duration::from_secs(10)).expect("it serves");
    let replaced = anybody.set_data(&format!("{PATH}/record"), &record);
    replaced.expect("anybody may");
    let refused = job.begin().expect_err("ahead");
    assert!(refused.is_record_ahead(), "{refused}");
    assert!(refused.to_string().contains(&now.to_string()), "{refused}");
    assert!(job.reset().expect("free"));
    assert!(!job.reset().expect("free"), "once");
    // It was forgotten with the rest that this period was run.
    let again = run(&job);
    assert_eq!(number(&again), now);
    again.done().expect("held");
    drop(right);
}

/// Its session ends in the middle of the work, and it comes again by itself.
#[test]
fn a_lost_session_is_told_apart_from_a_death() {
    let (server, client) = start();
    let job = OncePer::builder(&client, PATH).every(HOUR);
    let job = job.after_death(Rerun::Again).build().expect("good");
    let lost = run(&job);
    assert!(server.expire(client.session_id()));
    assert!(lost.lost().recv().is_ok());
    assert!(lost.done().expect_err("lost").is_lock_lost());
    let again = run(&job);
    let previous = again.previous().expect("one was before");
    assert_eq!(previous.state(), RunState::SessionLost);
    again.done().expect("held");
    // Of one that does not live on nobody can say more than that it died.
    server.advance_clock(HOUR);
    let other = connect(&server);
    let dead = run(&self::job(&other));
    server.expire(other.session_id());
    let again = run(&job);
    let previous = again.previous().expect("one was before");
    assert_eq!(previous.state(), RunState::Died);
    drop(dead);
    again.done().expect("held");
}
