//! The verbs that look at locks.

use crate::fixtures::{Running, SOON, bare, client, said, server, wait_for_queue, zklock};
use testbed::{Ensemble, Server, wait_until};

fn hold(path: &str, more: &[&str]) -> Running {
    let all = ["run"].iter().chain(more).copied().chain([path]);
    let all = all.chain(["--", "sh", "-c", "echo ready; read line; exit 0"]);
    Running::start(&mut zklock(all)).expect("ready")
}

#[test]
fn the_queue_is_shown_in_order() {
    let path = "/looking/who";
    let holder = hold(path, &[]);
    let waiter = Running::start(&mut zklock(["run", path, "--", "true"]));
    wait_for_queue(&client(), path, 2);
    let who = said(&mut zklock(["who", path]));
    assert_eq!(who.status, 0, "{}", who.err);
    let lines: Vec<_> = who.out.lines().collect();
    assert_eq!(lines.len(), 2, "{}", who.out);
    assert!(lines[0].starts_with("holds") && lines[0].contains(&format!("pid {}", holder.pid())));
    assert!(lines[1].starts_with("waits") && lines[1].contains(&format!("pid {}", waiter.pid())));

    let json = said(&mut zklock(["who", "--json", path])).out;
    let all: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(all[0]["holds"], true);
    assert_eq!(all[0]["pid"], holder.pid());
    assert_eq!(all[1]["pid"], waiter.pid());
    assert!(
        all[0]["session"]
            .as_str()
            .is_some_and(|id| id.starts_with("0x"))
    );
    assert!(
        all[0]["since"].is_string() && all[0]["host"].is_string() && all[0]["data"].is_string()
    );

    assert_eq!(holder.finish().status, 0);
    assert_eq!(waiter.finish().status, 0);
    let nobody = said(&mut zklock(["who", path]));
    assert_eq!((nobody.status, &*nobody.out), (0, ""));
    assert!(nobody.err.contains("nobody"), "{}", nobody.err);
    assert_eq!(said(&mut zklock(["who", "--json", path])).out, "[]\n");
}

/// Data of one's own takes the place of host, process and time. It hid for how long, too.
#[test]
fn whoever_left_data_of_its_own_is_shown_with_its_age() {
    let path = "/looking/data";
    let client = client();
    let lock = zklock::Mutex::builder(&client, path).data("node-7");
    let _guard = lock.build().expect("good").lock().expect("free");
    let json = said(&mut zklock(["who", "--json", path])).out;
    let all: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(all[0]["data"], "node-7");
    assert!(all[0]["pid"].is_null());
    let since = all[0]["since"].as_str().expect("by the servers' clock");
    let since = humantime::parse_rfc3339(since).expect("a time");
    let age = std::time::SystemTime::now().duration_since(since);
    assert!(age.expect("the servers are on this machine") < SOON);
}

/// One lock that another keeps to itself ended the whole list.
#[test]
fn locks_that_are_closed_to_us_are_left_out() {
    let owner = zklock::Client::builder(&server().connect_string())
        .auth("digest", "owner:secret")
        .acl(zklock::Acl::creator_all())
        .connect()
        .expect("the server serves");
    let (open, closed) = ("/looking/closed/open", "/looking/closed/not");
    // The folders are everybody's.
    for path in [open, closed] {
        assert_eq!(said(&mut zklock(["run", path, "--", "true"])).status, 0);
    }
    let lock = |client, path| {
        let lock = zklock::Mutex::new(client, path).expect("a good path");
        lock.lock().expect("the server serves")
    };
    let ours = client();
    let guards = [lock(&ours, open), lock(&owner, closed)];
    let listed = said(&mut zklock(["ls", "-R", "/looking/closed"]));
    assert_eq!(listed.status, 0, "{}", listed.err);
    assert!(listed.out.starts_with(open), "{}", listed.out);
    assert!(
        listed.err.contains(&format!("{closed}: left out")),
        "{}",
        listed.err
    );
    // Of what cannot be looked at nobody knows whether it is used for another kind of lock.
    let shared = said(&mut zklock(["run", "--shared", closed, "--", "true"]));
    assert_eq!(shared.status, 77, "{}", shared.err);
    drop(guards);
}

#[test]
fn locks_of_every_kind_are_found_in_a_tree() {
    let kinds: [(&str, &[&str], &str); 4] = [
        ("/looking/tree/a/plain", &[], "mutex"),
        ("/looking/tree/b", &["--shared"], "read-write lock"),
        ("/looking/tree/c", &["--semaphore=2"], "semaphore"),
        ("/looking/tree/d", &["--write"], "read-write lock"),
    ];
    let holders = kinds.map(|(path, more, _)| hold(path, more));
    // The lock in front of a semaphore is given back in the background, after the permit was taken.
    let mut json = String::new();
    wait_until("nobody waits", SOON, || {
        json = said(&mut zklock(["ls", "-R", "--json", "/looking/tree"])).out;
        let found: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let mut found = found.as_array().expect("an array").iter();
        found.all(|found| found["waiters"] == 0)
    });
    let found: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let found = found.as_array().expect("an array");
    assert_eq!(found.len(), kinds.len(), "{json}");
    for (found, (path, _, kind)) in found.iter().zip(kinds) {
        assert_eq!(
            (&found["path"], &found["kind"]),
            (&path.into(), &kind.into())
        );
        assert_eq!(found["holders"].as_array().map(Vec::len), Some(1), "{json}");
    }
    // One level only.
    let text = said(&mut zklock(["ls", "/looking/tree"])).out;
    assert_eq!(text.lines().count(), 3, "{text}");
    for holder in holders {
        assert_eq!(holder.finish().status, 0);
    }
    assert_eq!(
        said(&mut zklock(["ls", "-R", "--json", "/looking/tree"])).out,
        "[]\n"
    );
}

#[test]
fn an_election_is_found_and_no_lock_is_taken_in_it() {
    let path = "/looking/election";
    let client = client();
    let election = zklock::Election::new(&client, path).expect("a good path");
    let leadership = election.campaign().expect("nobody else");
    let json = said(&mut zklock(["ls", "--json", "/looking/election"])).out;
    assert!(json.contains("leader election"), "{json}");
    let who = said(&mut zklock(["who", path]));
    assert_eq!(who.status, 0, "{}", who.err);
    let pid = std::process::id().to_string();
    assert!(who.out.contains(&pid), "{}", who.out);
    let refused = said(&mut zklock(["run", path, "--", "true"]));
    assert_eq!(refused.status, 64, "{}", refused.err);
    assert!(refused.err.contains("a leader election"), "{}", refused.err);
    leadership.resign().expect("ours");
}

/// It printed nothing, as if nobody had a lock anywhere.
#[test]
fn a_list_of_nothing_says_where_more_may_be() {
    let holder = hold("/looking/deep/a/b", &[]);
    let shallow = said(&mut zklock(["ls", "/looking/deep"]));
    assert_eq!((shallow.status, &*shallow.out), (0, ""));
    assert!(shallow.err.contains("-R"), "{}", shallow.err);
    assert_eq!(shallow.err.lines().count(), 1, "{}", shallow.err);
    let all = said(&mut zklock(["ls", "-R", "/looking/deep"]));
    assert_eq!((all.out.lines().count(), &*all.err), (1, ""), "{}", all.out);
    // Where nothing lies deeper, or there is nothing at all, that is not the advice.
    for (path, says) in [
        ("/looking/deep/a/b/none", "no such node"),
        ("/looking/deep/flat", "nobody"),
    ] {
        if says == "nobody" {
            let gone = said(&mut zklock(["run", path, "--", "true"]));
            assert_eq!(gone.status, 0, "{}", gone.err);
        }
        let nothing = said(&mut zklock(["ls", path]));
        assert_eq!((nothing.status, &*nothing.out), (0, ""));
        assert!(nothing.err.contains(says), "{}", nothing.err);
        assert!(!nothing.err.contains("-R"), "{}", nothing.err);
    }
    // For programs an empty list says it.
    let json = said(&mut zklock(["ls", "--json", "/looking/deep"]));
    assert_eq!((&*json.out, &*json.err), ("[]\n", ""));
    assert_eq!(holder.finish().status, 0);
}

#[test]
fn a_watch_tells_of_each_change() {
    let path = "/looking/watch";
    let first = hold(path, &[]);
    let mut watch = Running::start(&mut zklock(["watch", "--every=20ms", path]));
    assert!(watch.line().contains("is    holds"));
    let second = Running::start(&mut zklock([
        "run",
        path,
        "--",
        "sh",
        "-c",
        "echo ready; read line; exit 0",
    ]));
    assert!(watch.line().contains("came  waits"));
    assert_eq!(first.finish().status, 0);
    assert!(watch.line().contains("left  holds"));
    assert!(watch.line().contains("got   holds"));
    assert_eq!(second.finish().status, 0);
    assert!(watch.line().contains("left  holds"));
    testbed::process::kill(watch.pid());
    // Killed: no status to look at.
}

#[test]
fn only_who_is_named_is_broken() {
    let path = "/looking/break";
    let holder = hold(path, &[]);
    let nobody = said(&mut zklock(["break", path, "--node", "nobody"]));
    assert_eq!(nobody.status, 70);
    assert!(
        nobody.err.contains("no participant has the node nobody"),
        "{}",
        nobody.err
    );
    assert_eq!(holder.finish().status, 0);
}

#[test]
fn unused_folders_are_shown_before_they_are_removed() {
    let used = hold("/looking/gc/used", &[]);
    assert_eq!(
        said(&mut zklock(["run", "/looking/gc/a/b", "--", "true"])).status,
        0
    );
    let shown = said(&mut zklock(["gc", "/looking/gc"]));
    assert_eq!(
        shown.out, "/looking/gc/a/b\n/looking/gc/a\n",
        "{}",
        shown.err
    );
    let client = client();
    assert!(
        client
            .children("/looking/gc/a/b")
            .expect("it serves")
            .is_some()
    );
    let removed = said(&mut zklock(["gc", "--force", "/looking/gc"]));
    assert!(
        removed.out.contains("removed 2"),
        "{} {}",
        removed.out,
        removed.err
    );
    assert!(
        client
            .children("/looking/gc/a")
            .expect("it serves")
            .is_none()
    );
    assert!(
        client
            .children("/looking/gc/used")
            .expect("it serves")
            .is_some()
    );
    assert_eq!(used.finish().status, 0);
}

#[test]
fn the_doctor_looks_at_the_servers() {
    let doctor = said(&mut zklock(["doctor", "--path", "/looking/doctor"]));
    assert_eq!(doctor.status, 0, "{}", doctor.err);
    for part in [
        &*format!("server {}: ZooKeeper ", server().connect_string()),
        "standalone",
        "session timeout: 10s",
        "round trip: median",
        "lock and unlock /looking/doctor: median",
        "! one server is named",
    ] {
        assert!(doctor.out.contains(part), "{part}: {}", doctor.out);
    }
}

/// A real one: it says so itself.
#[test]
fn the_doctor_warns_of_observers() {
    let ensemble = Ensemble::start_observed(2, 1, &Server::builder());
    let observer = ensemble.server(2).connect_string();
    let doctor = |servers: &str| said(bare().args(["doctor", "--servers", servers]));
    let all = doctor(&ensemble.connect_string());
    assert_eq!(all.status, 0, "{}", all.err);
    for part in ["leader", "follower", "observer"] {
        assert!(
            all.out.contains(&format!(", {part}\n")),
            "{part}: {}",
            all.out
        );
    }
    let warning = format!("! {observer} is an observer");
    assert!(all.out.contains(&warning), "{}", all.out);
    assert_eq!(all.out.matches("is an observer").count(), 1, "{}", all.out);
    // Voting servers alone are what is advised.
    let voters = [0, 1].map(|index| ensemble.server(index).connect_string());
    let voters = doctor(&voters.join(","));
    assert!(!voters.out.contains("observer"), "{}", voters.out);
}

#[test]
fn completions_and_man_pages_name_every_verb() {
    let bash = said(bare().args(["completions", "bash"])).out;
    let folder = tempfile::tempdir().expect("a place for the pages");
    let man = said(bare().args(["man", "--dir"]).arg(folder.path()));
    assert_eq!(man.status, 0, "{}", man.err);
    for verb in [
        "run",
        "ls",
        "who",
        "watch",
        "revoke",
        "break",
        "gc",
        "doctor",
        "test-server",
    ] {
        assert!(bash.contains(verb), "{verb}");
        assert!(folder.path().join(format!("zklock-{verb}.1")).exists());
    }
    assert!(!bash.contains("__shim"));
    assert!(said(bare().arg("man")).out.contains(".TH zklock"));
}
