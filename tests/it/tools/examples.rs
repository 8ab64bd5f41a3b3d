//! The programs in `examples/` do what their first lines say.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use testbed::{Proxy, wait_until};

use crate::fixtures::{SOON, children, client, example, mutex, server};

/// The program as `cargo run --example` would start it, with the server that nobody harms.
fn program(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(example(name));
    command.args(["--servers", &server().connect_string()]);
    command.args(arguments);
    command
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// One run of the nightly job; returns its status and what it said.
fn nightly(job: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let output = nightly_job(job, arguments)
        .output()
        .expect("the example `nightly`; build it by `cargo build --examples`");
    (output.status.code(), text(&output))
}

fn nightly_job(job: &str, arguments: &[&str]) -> Command {
    let mut command = program("nightly", &["--job", job]);
    command.args(arguments);
    command
}

/// A midnight of UTC can pass in this test, and then there are two nights.
#[test]
fn of_many_machines_one_does_the_night() {
    let job = "/examples/nightly/many";
    let machines: Vec<_> = (0..4)
        .map(|_| {
            let mut machine = nightly_job(job, &["--steps", "2"]);
            machine.stdout(Stdio::piped()).stderr(Stdio::piped());
            machine.spawn().expect("built with the tests")
        })
        .collect();
    let said = machines.into_iter().map(|machine| {
        let output = machine.wait_with_output().expect("it ends");
        let said = text(&output);
        assert!(matches!(output.status.code(), Some(0 | 75)), "{said}");
        said
    });
    let mut said: Vec<_> = said.collect();
    // The machine whose clock is late comes when the lock is free again.
    let (status, late) = nightly(job, &["--steps", "2"]);
    assert_eq!(status, Some(0), "{late}");
    said.push(late);
    let (_, history) = nightly(job, &["--history"]);
    let nights = history.lines().count();
    assert!(matches!(nights, 1 | 2), "{history}");
    let by_us = said.iter().filter(|said| said.contains("is done, by us"));
    assert_eq!(by_us.count(), nights, "{said:?}");
}

#[test]
fn a_nightly_job_that_is_asked_stops_and_another_takes_it_up() {
    let job = "/examples/nightly/asked";
    let mut long = nightly_job(job, &["--steps", "100000"]);
    let mut long = long
        .stdout(Stdio::piped())
        .spawn()
        .expect("built with the tests");
    let mut lines = BufReader::new(long.stdout.take().expect("piped"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("its first step");
    let long = Ends(long);
    let (_, asked) = nightly(job, &["--revoke"]);
    assert!(asked.contains("asked to stop"), "{asked}");
    assert_eq!(long.status(), Some(75), "not done yet");
    let (status, said) = nightly(job, &["--steps", "1"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("is done, by us"), "{said}");
    let (_, history) = nightly(job, &["--history"]);
    assert!(history.contains("asked to stop at step"), "{history}");
}

#[test]
fn no_reader_of_the_catalogue_sees_a_mix() {
    let folder = tempfile::tempdir().expect("a folder");
    let processes: Vec<_> = (0..2)
        .map(|_| {
            let arguments = ["--lock", "/examples/catalogue", "--seconds", "2"];
            let mut process = program("catalogue", &arguments);
            process.args(["--write-every-ms", "5", "--directory"]);
            process.arg(folder.path());
            process.stdout(Stdio::piped()).stderr(Stdio::piped());
            process.spawn().expect("built with the tests")
        })
        .collect();
    for process in processes {
        let output = process.wait_with_output().expect("it ends");
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        assert!(!said.starts_with("0 reads"), "{said}");
        assert!(!said.contains(" 0 writes"), "{said}");
    }
}

#[test]
fn the_pool_works_on_each_item_and_never_by_more_than_the_maximum() {
    let arguments = ["--pool", "/examples/pool", "--items", "12"];
    let mut process = program("pool", &arguments);
    let mut process = process
        .stdout(Stdio::piped())
        .spawn()
        .expect("built with the tests");
    let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
    let process = Ends(process);
    let (mut working, mut most) = (0, 0);
    let mut done: Vec<u32> = Vec::new();
    for line in lines {
        let line = line.expect("text");
        let item = line.strip_prefix("item ").unwrap_or_default();
        // Said with the permit in hand.
        if item.ends_with(" begins") {
            working += 1;
            most = most.max(working);
        }
        if let Some(item) = item.strip_suffix(" is done") {
            working -= 1;
            done.push(item.parse().expect("a number"));
        }
    }
    assert_eq!(process.status(), Some(0));
    assert!((1..=3).contains(&most), "{most} of eight threads worked");
    done.sort_unstable();
    assert_eq!(done, (1..=12).collect::<Vec<_>>());
}

/// The first booking failed where there was no ledger yet, for want of the nodes above.
#[test]
fn the_ledger_begins_on_a_fresh_ensemble() {
    let mut raw = crate::fixtures::raw(server());
    let made = raw.create("/example-ledger", b"", testbed::raw::Flags::Persistent);
    made.expect("nobody made it before");
    let servers = format!("{}/example-ledger", server().connect_string());
    for balance in ["10", "20", "30"] {
        let output = Command::new(example("ledger")).arg(&servers).output();
        let output = output.expect("built with the tests");
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(text(&output), format!("booked: {balance}\n"));
    }
    let entries = crate::fixtures::children(server(), "/example-ledger/ledger/entries");
    assert_eq!(entries.len(), 3, "{entries:?}");
}

/// A leader that only dropped its guard let the next one in while its worker was in the middle of a
/// step: a view says so at once, but who looks at it between steps hears of it later.
#[test]
fn a_leader_that_steps_down_has_ended_its_work() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = folder.path().join("journal");
    let leaders: Vec<_> = (0..2)
        .map(|_| {
            // Not terms: one that ends before the system lets its worker run has no step.
            let arguments = ["--lock", "/examples/leader", "--steps", "4"];
            let mut leader = program("leader", &arguments);
            // Longer than a term: each leader steps down in the middle of a step.
            leader.args(["--term-ms", "60", "--step-ms", "150", "--journal"]);
            leader.arg(&journal).stdout(Stdio::null());
            leader.spawn().expect("built with the tests")
        })
        .collect();
    for leader in leaders {
        assert_eq!(Ends(leader).status(), Some(0));
    }
    let journal = std::fs::read_to_string(&journal).expect("written");
    let lines: Vec<_> = journal.lines().collect();
    let mut leaders = std::collections::BTreeSet::new();
    for step in lines.chunks(2) {
        let begun = step[0].strip_suffix(" begins");
        let ended = step.get(1).and_then(|line| line.strip_suffix(" ends"));
        assert!(begun.is_some() && begun == ended, "two work: {journal}");
        leaders.extend(begun);
    }
    assert!(
        lines.len() >= 16,
        "as many steps as were asked for: {journal}"
    );
    assert_eq!(leaders.len(), 2, "both have led: {journal}");
}

/// What the page shows of the leader is what the test above runs.
#[test]
fn the_leader_on_the_page_is_the_one_in_the_examples() {
    let page = include_str!("../../../docs/coming-from.md");
    let program = include_str!("../../../examples/leader.rs");
    let (_, shared) = program
        .split_once("as well.\n\n")
        .expect("the line that says so");
    assert!(page.contains(shared));
}

/// A process that does not outlive its test.
struct Ends(Child);

impl Ends {
    fn status(mut self) -> Option<i32> {
        self.0.wait().expect("ours").code()
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // Fails when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tasks that take turns on one thread: none gets into the section of another, though it is the
/// same thread.
#[test]
fn tasks_of_one_executor_thread_exclude_each_other() {
    let ran = executor("count").output().expect("the example runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{ran:?}");
    assert!(
        said.contains("4 tasks on one thread counted to 40"),
        "{said}"
    );
    let left = children(server(), "/examples/executor-count");
    assert!(left.is_empty(), "{left:?}");
}

/// The loss of the lock ends the work, which waits for something else.
#[test]
fn work_on_an_executor_ends_when_its_lock_is_lost() {
    let mut program = executor("hold");
    let mut running = program.stdout(Stdio::piped()).spawn().expect("it starts");
    let lock = mutex(&client(), "/examples/executor-hold");
    let mut said = BufReader::new(running.stdout.take().expect("piped")).lines();
    let first = said.next().expect("it says so").expect("text");
    assert!(first.starts_with("held, token "), "{first}");
    let holder = lock.participants().expect("connected").remove(0);
    assert!(lock.break_lock(&holder).expect("allowed"));
    assert_eq!(
        said.next().expect("it says so").expect("text"),
        "lost: Removed"
    );
    assert_eq!(running.wait().expect("it ends").code(), Some(2));
}

fn executor(what: &str) -> Command {
    let mut command = Command::new(example("executor"));
    command.args([&server().connect_string(), what]);
    command
}

/// Two processes by the crate's own calls, while their connections break: what they say of their
/// sections is in one file, in the order in which they have said it.
#[test]
fn sections_by_the_crate_do_not_overlap_while_connections_break() {
    const SECTIONS: usize = 8;
    let proxy = Proxy::start(server().addr());
    let said = tempfile::NamedTempFile::new().expect("a file");
    let open = || {
        let file = std::fs::OpenOptions::new().append(true).open(said.path());
        Stdio::from(file.expect("it is there"))
    };
    let read = || std::fs::read_to_string(said.path()).expect("lines");
    let sections = SECTIONS.to_string();
    let arguments = ["--lock", "/examples-by-the-crate", "--sections", &sections];
    let processes: Vec<_> = (0..2)
        .map(|_| {
            let mut command = Command::new(example("by_the_crate"));
            command.args(["--servers", &proxy.connect_string()]);
            command.args(arguments).stdout(open());
            command.spawn().expect("the example `by_the_crate`")
        })
        .collect();
    for breaks in 1..=3 {
        wait_until("they go on", SOON, || read().lines().count() >= breaks * 4);
        proxy.reset_all();
    }
    for process in processes {
        let output = process.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
    }
    let lines = read();
    let lines: Vec<_> = lines.lines().collect();
    assert_eq!(lines.len(), 2 * 2 * SECTIONS, "{lines:#?}");
    for section in lines.chunks(2) {
        let inside = section[0].strip_prefix("enter ").expect("it enters");
        assert_eq!(section[1], format!("leave {inside}"), "{lines:#?}");
    }
    assert!(children(server(), "/examples-by-the-crate").is_empty());
}

/// A job that was stopped is gone on with, each step done once.
#[test]
fn progress_goes_on_where_the_last_process_stopped() {
    let steps = |more: &[&str]| {
        let all = [&["--lock", "/examples-progress", "--steps", "7"], more].concat();
        let output = program("progress", &all).output();
        let output = output.expect("the example `progress`");
        assert!(output.status.success(), "{}", text(&output));
        let said = text(&output);
        let steps = said.lines().filter_map(|line| line.strip_prefix("step "));
        steps
            .map(|step| step.parse().expect("a number"))
            .collect::<Vec<u32>>()
    };
    assert_eq!(steps(&["--stop-after", "3"]), [1, 2, 3]);
    assert_eq!(steps(&[]), [4, 5, 6, 7]);
    assert!(steps(&[]).is_empty());
}
