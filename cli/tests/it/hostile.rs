//! What others have written into nodes: anybody can, and nothing of it may harm who looks.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rustix::process::{Pid, Signal, kill_process};

use crate::fixtures::{Running, client, said, server, zklock};

/// What has been seen to harm, and what looks as if it could.
const KNOWN: [&[u8]; 11] = [
    b"host=a pid=1 thread=t since=999999999999999",
    b"host=a pid=1 thread=t since=18446744073709551615",
    b"host=a pid=4294967295 thread=t since=0",
    b"host=%1B[2J%0A pid=1 thread=t since=1",
    b"host= pid=1 thread= since=1",
    b"host=%E2%80%AE pid=1 thread=t since=1",
    b"\x1b[31mred\n\r\x07",
    b"\xff\xfe\x00",
    b"",
    b"unlock",
    b"%",
];

/// Identities with numbers and names of any kind, and bytes of any kind.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let identity = ("\\PC{0,20}", any::<u32>(), "[ -~]{0,20}", any::<u64>());
    let identity = identity.prop_map(|(host, pid, thread, since)| {
        format!("host={host} pid={pid} thread={thread} since={since}").into_bytes()
    });
    prop_oneof![
        identity,
        proptest::collection::vec(any::<u8>(), 0..200),
        "host=[%a-f0-9]{0,9} pid=[0-9]{0,12} thread=t since=[0-9]{0,25}"
            .prop_map(String::into_bytes),
    ]
}

/// One participant's `since=999999999999999` was a panic of `who`, `ls -R /`, `revoke` and `break`.
#[test]
fn no_data_of_a_participant_harms_who_looks() {
    let client = client();
    let mut runner = TestRunner::deterministic();
    let made = (0..200).map(|_| {
        data()
            .new_tree(&mut runner)
            .expect("it can be made")
            .current()
    });
    let all: Vec<Vec<u8>> = KNOWN.iter().map(|data| data.to_vec()).chain(made).collect();
    // As many locks as there are data, each with its holder.
    let holders: Vec<_> = all
        .iter()
        .enumerate()
        .map(|(at, data)| {
            let path = format!("/hostile/{at:03}");
            let lock = zklock::Mutex::builder(&client, &path).data(data.clone());
            lock.build()
                .expect("a good path")
                .lock()
                .expect("the server serves")
        })
        .collect();
    let no_control = |text: &str| {
        let bad = text
            .chars()
            .find(|letter| letter.is_control() && *letter != '\n');
        assert_eq!(bad, None, "{text:?}");
    };
    let listed = said(&mut zklock(["ls", "-R", "/hostile"]));
    assert_eq!(listed.status, 0, "{}", listed.err);
    assert_eq!(listed.out.lines().count(), all.len());
    no_control(&listed.out);
    let listed = said(&mut zklock(["ls", "-R", "--json", "/hostile"]));
    let parsed: serde_json::Value = serde_json::from_str(&listed.out).expect("JSON");
    assert_eq!(parsed.as_array().map(Vec::len), Some(all.len()));
    for at in 0..KNOWN.len() {
        let path = format!("/hostile/{at:03}");
        let who = said(&mut zklock(["who", &path]));
        assert_eq!(
            (who.status, who.out.lines().count()),
            (0, 1),
            "{at}: {}",
            who.err
        );
        no_control(&who.out);
        let revoked = said(&mut zklock(["revoke", &path]));
        assert_eq!(revoked.status, 0, "{at}: {}", revoked.err);
        no_control(&revoked.out);
    }
    drop(holders);
}

#[test]
fn a_watch_as_the_first_process_of_a_container_ends_at_term() {
    let test = ["unshare", "--pid", "--fork", "--mount-proc", "true"];
    let mut unshare = std::process::Command::new(test[0]);
    if !unshare
        .args(&test[1..])
        .status()
        .is_ok_and(|ended| ended.success())
    {
        eprintln!("left out: no PID namespace can be made here");
        return;
    }
    let path = "/hostile/first-process";
    let client = client();
    let lock = zklock::Mutex::new(&client, path).expect("a good path");
    let guard = lock.lock().expect("the server serves");
    let mut watch = std::process::Command::new("unshare");
    watch.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    watch.args([env!("CARGO_BIN_EXE_zklock"), "watch", path]);
    let mut watch = Running::start(watch.env("ZK_CONNECT", server().connect_string()));
    assert!(watch.line().contains("is    holds"));
    let children = format!("/proc/{0}/task/{0}/children", watch.pid());
    let inner = std::fs::read_to_string(children).expect("it runs");
    let inner = inner.trim().parse().ok().and_then(Pid::from_raw);
    kill_process(inner.expect("a process id"), Signal::TERM).expect("it runs");
    assert_eq!(watch.end().status, 143);
    drop(guard);
}
