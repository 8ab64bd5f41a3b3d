//! A job that is done once: by whom, what the others hear, and what is left of one that did not end.

use std::time::{Duration, Instant};

use testbed::raw::Flags;
use testbed::{Action, Matcher, Proxy, opcode, wait_until};
use zklock::{
    AcquireOptions, Begun, CancelToken, Client, JobRun, OncePer, Rerun, RetryPolicy, RunState,
};

use crate::fixtures::{SOON, builder, client, client_at, raw, server, wait_for_children};

/// Longer than any test: the period in which it begins is that in which it ends. Once in some
/// thousand years it is not.
const LONG: Duration = Duration::from_secs(50 * 365 * 24 * 3600);

fn periodic(client: &Client, path: &str) -> OncePer {
    OncePer::new(client, path, LONG).expect("a good path")
}

fn keyed(client: &Client, path: &str, key: &str) -> OncePer {
    OncePer::for_key(client, path, key).expect("a good key")
}

/// Whoever dies or fails is followed.
fn stubborn(client: &Client, path: &str) -> OncePer {
    let job = OncePer::builder(client, path).every(LONG);
    let job = job.after_failure(Rerun::Again).after_death(Rerun::Again);
    job.build().expect("a good path")
}

#[track_caller]
fn ours(begun: Begun) -> JobRun {
    match begun {
        Begun::Run(run) => run,
        Begun::Done(before) => panic!("done: {before}"),
    }
}

#[track_caller]
fn states(job: &OncePer) -> Vec<RunState> {
    let record = job.record().expect("readable").expect("it is there");
    record.runs().iter().map(zklock::RunRecord::state).collect()
}

#[test]
fn one_does_it_and_the_others_hear_who_did() {
    let path = "/once/one";
    let (one, other) = (client(), client());
    let (first, second) = (periodic(&one, path), periodic(&other, path));
    assert_eq!(first.record().expect("readable"), None);
    let run = ours(first.begin().expect("nobody has"));
    assert!(run.is_held());
    let token = run.fencing_token().expect("held");
    assert_eq!(run.record().fencing_token(), token);
    assert_eq!((run.record().attempt(), run.missed()), (1, 0));
    assert!(run.previous().is_none());
    assert_eq!(states(&second), [RunState::Running]);
    run.done().expect("held");
    wait_for_children(server(), path, 1);
    let Begun::Done(before) = second.begin().expect("free") else {
        panic!("a second run of one period");
    };
    assert_eq!(before.state(), RunState::Done);
    assert_eq!(before.fencing_token(), token);
    assert_eq!(before.who().process_id(), std::process::id());
    assert!(before.ended().expect("it ended") >= before.started());
    assert_eq!(states(&second), [RunState::Done]);
    assert!(first.reset().is_ok_and(|was_ahead| !was_ahead));
}

#[test]
fn a_run_without_a_word_has_failed() {
    let path = "/once/failed";
    let client = client();
    let job = periodic(&client, path);
    drop(ours(job.begin().expect("free")));
    let died = std::thread::scope(|scope| {
        let panics = scope.spawn(|| {
            let _run = ours(job.begin().expect("what failed is run again"));
            std::panic::resume_unwind(Box::new("the work's own"));
        });
        panics.join().is_err()
    });
    assert!(died);
    let run = ours(job.begin().expect("what panicked is run again"));
    assert_eq!(run.record().attempt(), 3);
    let previous = run.previous().expect("two were before");
    assert_eq!(previous.why(), Some("it panicked"));
    run.failed("disk\nfull").expect("held");
    let record = job.record().expect("readable").expect("there");
    assert_eq!(record.last().and_then(|run| run.why()), Some("disk\nfull"));
    assert_eq!(states(&job), [RunState::Failed; 3]);
    ours(job.begin().expect("free")).done().expect("held");
    assert!(matches!(job.begin(), Ok(Begun::Done(_))));
}

#[test]
fn who_asked_for_it_decides_after_a_failure() {
    let client = client();
    let job = OncePer::builder(&client, "/once/told").key("a");
    let job = job.after_failure(Rerun::WhenTold).build().expect("good");
    assert!(job.allow_again().expect("free").is_none());
    ours(job.begin().expect("free")).failed("no").expect("held");
    let refused = job.begin().expect_err("nobody has said so");
    assert!(refused.is_unsettled_run(), "{refused}");
    assert!(refused.to_string().contains("no"), "{refused}");
    // Another key is another matter.
    ours(keyed(&client, "/once/told", "b").begin().expect("free"))
        .done()
        .expect("held");
    let allowed = job.allow_again().expect("free").expect("it failed");
    assert!(allowed.may_run_again());
    let run = ours(job.begin().expect("somebody has said so"));
    assert_eq!(run.record().attempt(), 2);
    run.done().expect("held");
    assert!(job.allow_again().expect("free").is_none(), "it is done");
    let again = keyed(&client, "/once/told", "a").begin();
    assert!(matches!(again, Ok(Begun::Done(_))));
}

#[test]
fn a_try_does_not_wait_and_a_deadline_ends_a_wait() {
    let path = "/once/busy";
    let (one, other) = (client(), client());
    let run = ours(periodic(&one, path).begin().expect("free"));
    let job = periodic(&other, path);
    assert!(job.try_begin().expect("answers").is_none());
    let short = Duration::from_millis(50);
    assert!(
        job.try_begin_for(Duration::ZERO)
            .expect("answers")
            .is_none()
    );
    assert!(job.try_begin_for(short).expect("answers").is_none());
    let options = AcquireOptions::new().timeout(short);
    assert!(job.begin_with(options).expect_err("busy").is_timeout());
    let stop = CancelToken::new();
    stop.cancel();
    let options = AcquireOptions::new().cancel(&stop);
    assert!(job.begin_with(options).expect_err("stopped").is_cancelled());
    let options = AcquireOptions::new().data("mine");
    assert!(job.begin_with(options).expect_err("no data").is_invalid());
    wait_for_children(server(), path, 2);
    run.done().expect("held");
    assert!(matches!(job.try_begin(), Ok(Some(Begun::Done(_)))));
    assert!(matches!(job.try_begin_for(SOON), Ok(Some(Begun::Done(_)))));
}

/// It would have found its own run dead, and begun a second one beside it.
#[test]
fn who_has_a_run_begins_no_other() {
    let client = client();
    let job = stubborn(&client, "/once/nested");
    let run = ours(job.begin().expect("free"));
    let refused = job.clone().begin().expect_err("a run is open");
    assert!(refused.is_would_deadlock(), "{refused}");
    assert_eq!(states(&job), [RunState::Running]);
    run.done().expect("held");
}

/// A key that is done is done, also while another key's run has the lock.
#[test]
fn nobody_waits_to_hear_that_a_key_is_done() {
    let path = "/once/keys";
    let (one, other) = (client(), client());
    ours(keyed(&one, path, "a").begin().expect("free"))
        .done()
        .expect("held");
    let run = ours(keyed(&one, path, "b").begin().expect("free"));
    let begun = keyed(&other, path, "a").begin().expect("needs no lock");
    assert!(matches!(begun, Begun::Done(before) if before.key() == Some("a")));
    assert!(matches!(keyed(&other, path, "b").try_begin(), Ok(None)));
    run.done().expect("held");
}

/// A process that ends without a word, as if it was killed: its session is over at once.
#[test]
fn a_run_whose_process_is_gone_has_died() {
    let path = "/once/died";
    let (one, other) = (client(), client());
    let job = periodic(&one, path);
    let run = ours(job.begin().expect("free"));
    one.close();
    let next = periodic(&other, path);
    wait_for_children(server(), path, 1);
    // Who only looks sees it, too, and writes nothing.
    assert_eq!(states(&next), [RunState::Died]);
    let refused = next.begin().expect_err("nobody has said so");
    assert!(refused.is_unsettled_run(), "{refused}");
    // It comes late with its word.
    assert!(
        run.done()
            .expect_err("not its lock any more")
            .is_lock_lost()
    );
    assert_eq!(states(&next), [RunState::Died]);
    let run = ours(stubborn(&other, path).begin().expect("free"));
    assert_eq!(run.record().attempt(), 2);
    run.done().expect("held");
    assert_eq!(states(&next), [RunState::Died, RunState::Done]);
}

/// A holder whose lock was taken away, and that lives on, says so when it comes again.
#[test]
fn who_lives_on_says_how_it_lost_its_lock() {
    let path = "/once/lost";
    let (one, other) = (client(), client());
    let job = stubborn(&one, path);
    let run = ours(job.begin().expect("free"));
    let node = run.path().to_owned();
    raw(server()).delete(&node).expect("it stands");
    drop(run);
    let run = ours(job.begin().expect("free"));
    assert_eq!(states(&job), [RunState::LockRemoved, RunState::Running]);
    // Somebody else comes first.
    let node = run.path().to_owned();
    raw(server()).delete(&node).expect("it stands");
    let next = ours(stubborn(&other, path).begin().expect("free"));
    assert!(run.done().expect_err("another has it").is_lock_lost());
    next.failed("for the next one").expect("held");
    let expected = [RunState::LockRemoved, RunState::Died, RunState::Failed];
    assert_eq!(states(&job), expected);
    ours(job.begin().expect("free")).done().expect("held");
    let expected = [
        RunState::LockRemoved,
        RunState::LockRemoved,
        RunState::Failed,
        RunState::Done,
    ];
    assert_eq!(states(&job), expected);
}

/// The word "done" is on its way when the lock is taken away and the next one begins.
#[test]
fn a_late_done_is_refused_by_the_servers() {
    let path = "/once/late";
    let proxy = Proxy::start(server().addr());
    let late = client_at(&proxy.connect_string());
    let run = ours(periodic(&late, path).begin().expect("free"));
    let node = run.path().to_owned();
    let held = proxy.hold_request(opcode::MULTI);
    std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            held.wait_until_held(SOON);
            raw(server()).delete(&node).expect("it stands");
            let other = client();
            let run = ours(stubborn(&other, path).begin().expect("free"));
            held.release();
            run.done()
        });
        assert!(run.done().expect_err("too late").is_lock_lost());
        next.join().expect("no panic").expect("held");
    });
    let job = periodic(&late, path);
    assert_eq!(states(&job), [RunState::Died, RunState::Done]);
}

/// Each write of a run in turn is done, and its answer lost.
#[test]
fn lost_answers_make_no_second_run() {
    let proxy = Proxy::start(server().addr());
    let shaky = client_at(&proxy.connect_string());
    for nth in 1..=3 {
        let path = format!("/once/answers/{nth}");
        let job = periodic(&shaky, &path);
        let multi = Matcher::nth(opcode::MULTI, nth).with_path_containing("lock-");
        let trap = proxy.on_reply(multi, Action::Reset);
        let run = ours(job.begin().expect("it asks again"));
        assert_eq!(run.record().attempt(), 1, "{nth}");
        run.done().expect("it asks again");
        assert_eq!(trap.times_sprung(), 1, "{nth}");
        assert_eq!(states(&job), [RunState::Done], "{nth}");
    }
    // And each is lost before the server has it.
    for nth in 1..=3 {
        let path = format!("/once/requests/{nth}");
        let job = periodic(&shaky, &path);
        let multi = Matcher::nth(opcode::MULTI, nth).with_path_containing("lock-");
        let trap = proxy.on_request(multi, Action::Reset);
        let run = ours(job.begin().expect("it asks again"));
        run.done().expect("it asks again");
        assert_eq!(trap.times_sprung(), 1, "{nth}");
        assert_eq!(states(&job), [RunState::Done], "{nth}");
    }
}

/// The answer to a begin is lost, and who asked waits no longer when contact is back: it had an error, and
/// the others found a run that died, of which no work was begun.
#[test]
fn a_begin_whose_answer_comes_late_is_given_out() {
    let proxy = Proxy::start(server().addr());
    let shaky = client_at(&proxy.connect_string());
    let job = periodic(&shaky, "/once/late-answer");
    let begin = Matcher::nth(opcode::MULTI, 2).with_path_containing("lock-");
    let trap = proxy.on_reply(begin, Action::Reset);
    // Connections that are open stay.
    proxy.refuse();
    let stop = CancelToken::new();
    let run = std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("it is written", SOON, || trap.times_sprung() == 1);
            stop.cancel();
            proxy.accept();
        });
        let begun = job.begin_with(AcquireOptions::new().cancel(&stop));
        ours(begun.expect("it was begun before the cancel"))
    });
    assert_eq!(run.record().attempt(), 1);
    run.done().expect("held");
    assert_eq!(states(&job), [RunState::Done]);
}

/// It waited for as long as any call does, to ask whether its key is done.
#[test]
fn a_try_of_a_key_without_a_connection_fails_at_once() {
    let proxy = Proxy::start(server().addr());
    let patient = builder(&proxy.connect_string()).retry(RetryPolicy::new().give_up_after(SOON));
    let patient = patient.connect().expect("a server that works");
    let job = keyed(&patient, "/once/no-contact", "a");
    proxy.refuse();
    proxy.reset_all();
    wait_until("out of contact", SOON, || job.lock().try_lock().is_err());
    let asked = Instant::now();
    let error = job.try_begin().expect_err("out of contact");
    assert!(error.is_connection_loss(), "{error}");
    let waited = asked.elapsed();
    assert!(waited < SOON / 2, "{waited:?}");
}

/// As long as it asks, it is not told what came of its begin.
#[test]
fn a_run_that_nobody_got_needs_no_word_to_be_run_again() {
    let proxy = Proxy::start(server().addr());
    let hasty = RetryPolicy::new().give_up_after(Duration::from_millis(100));
    let shaky = builder(&proxy.connect_string()).retry(hasty);
    let shaky = shaky.connect().expect("a server that works");
    let job = OncePer::builder(&shaky, "/once/never-given").every(LONG);
    let job = job.after_failure(Rerun::WhenTold).build().expect("good");
    let begin = Matcher::nth(opcode::MULTI, 2).with_path_containing("lock-");
    let trap = proxy.on_reply(begin, Action::Reset);
    proxy.refuse();
    let error = job.begin().expect_err("out of contact");
    assert!(error.is_connection_loss(), "{error}");
    assert_eq!(trap.times_sprung(), 1);
    proxy.accept();
    wait_until("contact", SOON, || job.record().is_ok());
    let run = ours(job.begin().expect("no work was begun"));
    assert_eq!(run.record().attempt(), 2);
    let before = run.previous().expect("it was begun");
    assert_eq!(before.state(), RunState::Failed);
    assert_eq!(before.why(), Some("nobody got the run"));
    run.done().expect("held");
}

/// Ten writes in a row that overloaded servers would not do were taken for somebody who changes the record
/// all the time, and that was final.
#[test]
fn servers_that_refuse_for_now_are_asked_again_and_told_of_as_such() {
    const THROTTLED: i32 = -127;
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let job = periodic(&client, "/once/throttled");
    let writes = || Matcher::every(opcode::MULTI).with_path_containing("lock-");
    let trap = proxy.on_request(writes(), Action::Refuse(THROTTLED));
    let refused = job.begin().expect_err("nothing is written");
    // They refuse what proves the session to be alive, too.
    let is_told = refused.is_connection_loss() || refused.is_lock_lost();
    assert!(is_told, "{refused}");
    assert!(trap.times_sprung() > 3);
    trap.disarm();
    let run = ours(job.begin().expect("they take it now"));
    assert_eq!(run.record().attempt(), 1);
    // And the word of its end.
    let trap = proxy.on_request(writes(), Action::Refuse(THROTTLED));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("it asks again", SOON, || trap.times_sprung() > 1);
            trap.disarm();
        });
        run.done().expect("held");
    });
    assert_eq!(states(&job), [RunState::Done]);
}

#[test]
fn a_record_that_is_not_understood_is_left_alone() {
    let client = client();
    for (name, text, says) in [
        ("newer", "zklock-once 7\nwhatever\n", "version \"7\""),
        ("other", "hello", "no record of a job"),
        ("broken", "zklock-once 1\nkeys\nrun key=a\n", "line 3"),
    ] {
        let path = format!("/once/foreign-{name}");
        let mut raw = raw(server());
        let _ = raw.create("/once", b"", Flags::Persistent);
        raw.create(&path, b"", Flags::Persistent).expect("new");
        let record = format!("{path}/record");
        raw.create(&record, text.as_bytes(), Flags::Persistent)
            .expect("new");
        let job = keyed(&client, &path, "a");
        for error in [
            job.begin().map(drop).expect_err("not understood"),
            job.record().map(drop).expect_err("not understood"),
            job.allow_again().map(drop).expect_err("not understood"),
        ] {
            assert!(error.is_invalid(), "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
        assert_eq!(raw.data(&record).expect("there"), text.as_bytes());
        wait_for_children(server(), &path, 1);
    }
}

#[test]
fn a_path_is_for_one_length_or_for_keys() {
    let client = client();
    let path = "/once/mixed";
    ours(periodic(&client, path).begin().expect("free"))
        .done()
        .expect("held");
    let shorter = OncePer::new(&client, path, Duration::from_secs(1)).expect("good");
    for job in [shorter, keyed(&client, path, "a")] {
        let error = job.begin().expect_err("another length");
        assert!(error.is_invalid(), "{error}");
        assert!(error.to_string().contains("1576800000s"), "{error}");
    }
    let builder = || OncePer::builder(&client, path);
    for (job, why) in [
        (builder(), "neither"),
        (builder().every(LONG).key("a"), "both"),
        (builder().every(Duration::ZERO), "no length"),
        (builder().every(Duration::from_nanos(1)), "too short"),
        (builder().key(""), "no key"),
        (builder().every(LONG).keep(0), "nothing kept"),
        (builder().every(LONG).keep(10_001), "too many"),
    ] {
        assert!(job.build().expect_err(why).is_invalid(), "{why}");
    }
    let long = "k".repeat(256);
    assert!(builder().key(&long).build().is_err());
    assert!(OncePer::record_at(&client, "x").is_err());
}

/// The oldest keys are forgotten, in the write that adds one.
#[test]
fn a_record_does_not_grow_without_end() {
    let client = client();
    let path = "/once/kept";
    for key in 0..8 {
        let key = key.to_string();
        let job = OncePer::builder(&client, path).key(&key).keep(5);
        ours(job.build().expect("good").begin().expect("free"))
            .done()
            .expect("held");
    }
    let record = OncePer::record_at(&client, path).expect("readable");
    let record = record.expect("there");
    let keys: Vec<_> = record.runs().iter().filter_map(|run| run.key()).collect();
    assert_eq!(keys, ["3", "4", "5", "6", "7"]);
}
