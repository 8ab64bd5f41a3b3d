//! Nobody hangs, and nobody is refused without a good reason.

use crate::history::{Call, NANOS_PER_MS, Process, Record};
use crate::violation::Violation;

/// Why a call of a worker may not fail: it asks for nothing wrong, and does not close its client.
const WRONG_REASONS: [&str; 4] = ["closed", "invalid", "would-deadlock", "other"];

pub(crate) fn violations(record: &Record) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut violate = |kind, story| violations.push(Violation::new(kind, story));
    for why in WRONG_REASONS {
        if let Some(count) = record.refusals.get(why) {
            violate("wrong reason", format!("{count} calls failed with {why}"));
        }
    }
    for (name, process) in &record.processes {
        if !process.is_done && process.killed.is_none() {
            violate("process died", format!("{name} did not end"));
        }
    }
    for (((process, id), _), call) in &record.calls {
        let Some(process) = record.processes.get(process) else {
            violate("process died", format!("{} was never started", call.thread));
            continue;
        };
        let name = format!("{} id={id} ({})", call.thread, call.verb);
        // What a process waited for when it was killed had its bound all the same.
        let Some(ended) = call.ended.or(process.killed) else {
            violate("call hung", format!("{name} never returned"));
            continue;
        };
        if let Some(late) = lateness(call, ended, process, record.terms.slack) {
            let late = late / NANOS_PER_MS;
            let began = call.began;
            let story = format!("{name} that began at {began} returned {late} ms late");
            violate("call late", story);
        }
    }
    violations
}

/// By how much a call missed its bound, the slack taken off.
fn lateness(call: &Call, ended: u64, process: &Process, slack: u64) -> Option<u64> {
    let awake = |from: u64| {
        let stopped = process.stopped_between(from, ended);
        ended.saturating_sub(from).saturating_sub(stopped)
    };
    let bounds = [
        call.bound
            .map(|bound| awake(call.began).saturating_sub(bound)),
        call.cancelled.map(awake),
    ];
    let late = bounds.into_iter().flatten().max()?;
    (late > slack).then(|| late - slack)
}

#[cfg(test)]
mod tests {
    use crate::wrong_with;

    /// One second is the slack, one millisecond the bound of a release.
    const LATE: [(&str, &str); 2] = [
        ("3200 w0.0.0 given", "1001003201 w0.0.0 given"),
        ("4000 w0.0 ", "1100000000 w0.0 "),
    ];

    #[test]
    fn a_call_that_misses_its_bound_is_seen() {
        let wrong = wrong_with(&LATE);
        assert_eq!(
            wrong,
            ["w0.0.0 id=1 (release) that began at 3100 returned 0 ms late"]
        );
    }

    #[test]
    fn time_in_which_a_process_is_stopped_is_not_counted() {
        let stop = (
            "3100 w0.0.0 give",
            "3050 nemesis stop process=w0.0\n4050 nemesis cont process=w0.0\n3100 w0.0.0 give",
        );
        assert!(wrong_with(&[LATE[0], LATE[1], stop]).is_empty());
        let of_another = stop.1.replace("=w0.0", "=w1.0");
        assert_eq!(
            wrong_with(&[LATE[0], LATE[1], (stop.0, &of_another)]).len(),
            1
        );
    }

    #[test]
    fn a_cancelled_call_must_return() {
        let cancel = (
            "2000 w0.0.0 got",
            "1500 w0.0.0 cancel id=1\n2000 w0.0.0 got",
        );
        assert!(wrong_with(&[cancel]).is_empty());
        let late = (
            "2000 w0.0.0 got id=1 right=alone node=/l/a\n",
            "1500 w0.0.0 cancel id=1\n2000000000 w0.0.0 got id=1 right=alone node=/l/a\n",
        );
        let wrong = wrong_with(&[late]);
        assert!(
            wrong[0].contains("(wait) that began at 1000 returned 999"),
            "{wrong:?}"
        );
    }

    #[test]
    fn a_call_that_fails_for_no_good_reason_is_seen() {
        let refused = |why| {
            let call = "1000 w0.0.0 call id=2 verb=wait\n1100 w0.0.0 none id=2 why=";
            wrong_with(&[("4000 w0.0 done", &format!("{call}{why}\n4000 w0.0 done"))])
        };
        assert_eq!(refused("other"), ["1 calls failed with other"]);
        assert!(refused("connection-loss").is_empty());
    }

    #[test]
    fn a_call_that_never_returns_is_seen() {
        let wrong = wrong_with(&[("3200 w0.0.0 given id=1 why=dropped\n", "")]);
        assert_eq!(wrong, ["w0.0.0 id=1 (release) never returned"]);
        let killed = (
            "3200 w0.0.0 given id=1 why=dropped\n",
            "3300 nemesis kill process=w0.0\n",
        );
        assert!(wrong_with(&[killed, ("4000 w0.0 done\n", "")]).is_empty());
    }

    #[test]
    fn a_process_that_dies_by_itself_is_seen() {
        let wrong = wrong_with(&[("4000 w0.0 done\n", "")]);
        assert_eq!(wrong, ["w0.0 did not end"]);
    }
}
