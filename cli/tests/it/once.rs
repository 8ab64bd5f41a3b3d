//! Commands that run once for each period or key, and what is shown of them.

use crate::fixtures::{Running, Said, said, zklock};

/// Longer than any test; a period of 10,000 days ends once in 27 years.
const EVERY: &str = "--once-per=10000d";

fn job(path: &str, more: &[&str], script: &str) -> Said {
    let all = ["run"].iter().chain(more).copied().chain([path]);
    said(&mut zklock(all.chain(["--", "sh", "-c", script])))
}

fn shown(path: &str) -> String {
    let Said { status, out, err } = said(&mut zklock(["jobs", path]));
    assert_eq!(status, 0, "{err}");
    out
}

#[test]
fn a_command_runs_once_in_a_period_and_once_for_a_key() {
    for (path, once) in [("/once/period", EVERY), ("/once/key", "--once=2026-11-22")] {
        let first = job(path, &[once], "echo $ZKLOCK_ATTEMPT-$ZKLOCK_MISSED");
        assert_eq!((first.status, &*first.out, &*first.err), (0, "1-0\n", ""));
        let second = job(path, &[once], "echo again");
        assert_eq!((second.status, &*second.out), (0, ""));
        assert!(second.err.contains("nothing to do"), "{}", second.err);
        assert_eq!(second.err.lines().count(), 1, "{}", second.err);
        let quiet = job(path, &[once, "--quiet"], "echo again");
        assert_eq!((quiet.status, &*quiet.out, &*quiet.err), (0, "", ""));
        assert!(shown(path).contains("  done "), "{}", shown(path));
    }
    let other = job("/once/key", &["--once=2026-11-23"], "echo $ZKLOCK_KEY");
    assert_eq!(other.out, "2026-11-23\n");
    let json = said(&mut zklock(["jobs", "--json", "/once/key"])).out;
    let all: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(all[0]["key"], "2026-11-22");
    assert_eq!(all[1]["key"], "2026-11-23");
    assert_eq!(all[1]["state"], "done");
    assert!(all[1]["token"].as_u64() > all[0]["token"].as_u64());
    // The folder above shows both jobs, each with its last run.
    let all = shown("/once");
    let lines = all.lines().filter(|line| {
        line.starts_with("/once/period ") || line.starts_with("/once/key  2026-11-23")
    });
    assert_eq!(lines.count(), 2, "{all}");
}

#[test]
fn a_command_that_fails_is_run_again_or_waits_for_a_word() {
    let path = "/once/fails";
    assert_eq!(job(path, &[EVERY], "exit 3").status, 3);
    assert!(shown(path).contains("status 3"), "{}", shown(path));
    let killed = job(path, &[EVERY], "kill -KILL $$");
    assert_eq!(killed.status, 137);
    assert!(shown(path).contains("ended by KILL"), "{}", shown(path));
    let told = [EVERY, "--after-failure=when-told"];
    let refused = job(path, &told, "echo ran");
    assert_eq!((refused.status, &*refused.out), (65, ""));
    assert!(refused.err.contains("failed"), "{}", refused.err);
    let allowed = said(&mut zklock(["jobs", "--allow-again", path]));
    assert_eq!(allowed.status, 0, "{}", allowed.err);
    let third = job(path, &told, "echo $ZKLOCK_ATTEMPT");
    assert_eq!((third.status, &*third.out), (0, "3\n"), "{}", third.err);
    let nothing = said(&mut zklock(["jobs", "--allow-again", path]));
    assert_eq!(nothing.status, 64, "{}", nothing.err);
    let missing = job("/once/missing", &[EVERY], "true");
    assert_eq!(missing.status, 0);
    let words = ["run", EVERY, "/once/not-there", "--", "/no/such/command"];
    assert_eq!(said(&mut zklock(words)).status, 127);
    assert!(shown("/once/not-there").contains("cannot be run"));
}

/// Nobody can say how it ended, so somebody has to look.
#[test]
fn a_command_whose_supervisor_is_killed_has_died() {
    let path = "/once/dies";
    let script = ["--", "sh", "-c", "echo ready; read line"];
    let all = ["--session-timeout=1s", "run", EVERY, path];
    let first = Running::start(&mut zklock(all.into_iter().chain(script))).expect("ready");
    assert!(shown(path).contains("  running "), "{}", shown(path));
    let busy = job(path, &[EVERY, "--try"], "echo ran");
    assert_eq!((busy.status, &*busy.out), (75, ""), "{}", busy.err);
    testbed::process::kill(first.pid());
    let refused = job(path, &[EVERY], "echo ran");
    assert_eq!((refused.status, &*refused.out), (65, ""));
    assert!(refused.err.contains("died"), "{}", refused.err);
    let again = job(
        path,
        &[EVERY, "--after-death=again"],
        "echo $ZKLOCK_ATTEMPT",
    );
    assert_eq!((again.status, &*again.out), (0, "2\n"), "{}", again.err);
    assert_eq!(shown(path).lines().count(), 2, "{}", shown(path));
}

#[test]
fn what_makes_no_sense_of_a_job_is_refused() {
    for (more, says) in [
        (&[EVERY, "--once=a"][..], "--once"),
        (&[EVERY, "--shared"], "--shared"),
        (&["--once=a", "--semaphore=2"], "--semaphore"),
        (&["--catch-up=2"], "--once-per"),
        (&["--once="], "1 to 255"),
        (&["--once-per=0s"], "milliseconds"),
    ] {
        let wrong = job("/once/senseless", more, "echo ran");
        assert_eq!((wrong.status, &*wrong.out), (64, ""), "{more:?}");
        assert!(wrong.err.contains(says), "{more:?}: {}", wrong.err);
    }
    let nothing = said(&mut zklock(["jobs", "--reset", "/once/senseless"]));
    assert_eq!(nothing.status, 64, "{}", nothing.err);
    let mixed = job("/once/mixed", &[EVERY], "true");
    assert_eq!(mixed.status, 0, "{}", mixed.err);
    let mixed = job("/once/mixed", &["--once=a"], "echo ran");
    assert_eq!((mixed.status, &*mixed.out), (64, ""), "{}", mixed.err);
}
