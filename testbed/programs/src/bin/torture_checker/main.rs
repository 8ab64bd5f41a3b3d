//! Reads the history of a torture and says whether the locks kept their promises.
//!
//! `torture_checker FOLDER` reads every `*.history` in the folder. It shares no code with the
//! library or with those who wrote the history, and uses nothing but the standard library.
//!
//! # The history
//! One event is one line: `NANOSECONDS WHO EVENT [NAME=VALUE ...]`. The clock is the machine's
//! monotonic one, the same for all processes. A worker is called `w2.3` (the third process in the
//! second place), its threads `w2.3.0` and so on; the nemesis is `nemesis`. Within one file an id
//! names one call and what it got. The last line of a file may be torn by SIGKILL; it is ignored then.
//!
//! | event | by | the time is | fields |
//! |---|---|---|---|
//! | `begin` | nemesis | | `lock`, `max` (permits), `session_ms`, `slack_ms` |
//! | `start`, `kill` | nemesis | before it is done | `process` |
//! | `stop`, `cont` | nemesis | before it is stopped, after it goes on | `process` |
//! | `remove`, `removed` | nemesis | before a node is deleted, after | `node` |
//! | `fault`, `mended` | nemesis | before it is done, after it is mended | `kind`, `place` (of the worker that it is done to); `kind` |
//! | `left` | nemesis | when all rest | `nodes`, `watches` |
//! | `end` | nemesis | the last line | |
//! | `call` | thread | before the call | `id`, `verb`, `bound_ms` (none: it may wait) |
//! | `cancel` | thread | before the call is cancelled | `id` |
//! | `got` | thread | after the call has returned | `id`, `right` (`alone`, `shared`, `permits:N`), `node` |
//! | `none` | thread | after the call has returned | `id`, `why` |
//! | `look` | thread | after | `id`, `state` (`held`, `suspect`, `unsure`, `lost`), `began`: before |
//! | `told`, `untold` | thread | a loss was pushed; a known one was not | `id` |
//! | `token` | thread | | `id`, `value` |
//! | `ran` | thread | | `id`, `period`, `attempt`: what it holds is a run of a job |
//! | `give`, `given` | thread | before a release, after | `id`, `bound_ms`; `id`, `why` |
//! | `done` | process | before it ends by itself | |
//!
//! # What is checked
//! - **Exclusion.** A hold is *certain* from the moment at which its call had returned (`got`) to
//!   the *beginning* of the last look that did not say `lost`: the look was answered later than
//!   that, and a loss is final. What happens in a process that is stopped between a look and the
//!   next is nobody's promise, and not in the interval. `suspect` counts as held: it says that
//!   nobody else can have the lock yet. `unsure` is for libraries that cannot tell: nothing is certain
//!   from the last look before it to the end of the next that says `held`. A node that the nemesis removed makes nothing certain from the
//!   moment before its removal. Certain holds of one lock never overlap, unless all are `shared` or both are of
//!   one thread (re-entry); permits held for certain are never more than the maximum.
//! - **Loss is final**: no look says `held` or `suspect` after one of that hold said `lost`, or after
//!   the loss was told. It is told as well as known. Whose node was removed does not hold for longer than a session timeout
//!   and the slack.
//! - **Fencing tokens never fall**: of two certain holds `alone`, one after the other, the later
//!   has no smaller token. Two of different nodes have different ones.
//! - **A job's period is done once**: a run of a period whose end was confirmed (`given` with `unlocked`) is followed by
//!   no other of that period, and no run is of a smaller period than one before; by their tokens, which are the
//!   order in which they held. Two attempts of one period have different numbers.
//! - **Nobody hangs**: each call ends within its bound, a cancelled one at once, each with the slack added
//!   and the time taken off in which its process was stopped. A call without a bound ends before the
//!   history does. No call fails as `closed`, `invalid`, `would-deadlock` or `other`. A process ends by itself unless it was killed.
//! - **Nothing is left**: no node and no watch when all rest and the sessions of the killed are over.
//! - **Something happened**: the locks were held and the history is whole.

mod calls;
mod exclusion;
mod history;
mod loss;
mod runs;
mod tokens;
mod violation;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use exclusion::Certain;
use history::{NANOS_PER_MS, Record};
use violation::Violation;

/// One fault breaks many promises, and the first few tell it.
const MOST_SHOWN: usize = 20;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder] = arguments.as_slice() else {
        eprintln!("usage: torture_checker FOLDER");
        return ExitCode::from(2);
    };
    let record = match read(Path::new(folder)) {
        Ok(record) => record,
        Err(error) => {
            eprintln!("torture_checker: {error}");
            return ExitCode::from(2);
        }
    };
    let violations = violations(&record);
    print_summary(&record);
    println!("violations: {}", violation::summary(&violations));
    for violation in violations.iter().take(MOST_SHOWN) {
        println!("VIOLATION: {}", violation.story);
    }
    if violations.len() > MOST_SHOWN {
        println!("and {} more", violations.len() - MOST_SHOWN);
    }
    ExitCode::from(u8::from(!violations.is_empty()))
}

fn read(folder: &Path) -> Result<Record, String> {
    let entries = folder
        .read_dir()
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "history"))
        .collect();
    files.sort();
    let mut record = Record::default();
    for path in files {
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string());
        text.and_then(|text| record.add(&text))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(record)
}

/// Everything that must not be.
fn violations(record: &Record) -> Vec<Violation> {
    let mut violations = exclusion::violations(record);
    violations.extend(loss::violations(record));
    violations.extend(tokens::violations(record));
    violations.extend(runs::violations(record));
    violations.extend(calls::violations(record));
    violations.extend(wholeness(record));
    violations
}

fn wholeness(record: &Record) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut violate = |kind, story| violations.push(Violation::new(kind, story));
    if exclusion::certain_holds(record).is_empty() {
        let story = "nobody ever held the lock: this proves nothing";
        violate("proves nothing", story.to_owned());
    }
    match record.left {
        None => violate(
            "proves nothing",
            "nobody looked at what was left".to_owned(),
        ),
        Some((0, 0)) => {}
        Some((nodes, watches)) => {
            let story = format!("{nodes} nodes and {watches} watches are left");
            violate("something left", story);
        }
    }
    if !record.is_complete {
        violate("proves nothing", "the history has no end".to_owned());
    }
    violations
}

fn print_summary(record: &Record) {
    let certain = exclusion::certain_holds(record);
    let held: u64 = certain.iter().map(|hold| hold.end - hold.start).sum();
    let looks: usize = record.holds.values().map(|hold| hold.looks.len()).sum();
    let lost = record.holds.values().filter(|hold| hold.is_lost()).count();
    println!(
        "{}: {} processes, {} calls, {} holds (certain for {} ms in all, {lost} lost), {looks} looks",
        record.terms.lock,
        record.processes.len(),
        record.calls.len(),
        record.holds.len(),
        held / NANOS_PER_MS,
    );
    println!(
        "longest time without one who held for certain: {} ms",
        longest_pause(&certain)
    );
    println!("calls that gave nothing: {}", counts(&record.refusals));
    let mut faults = BTreeMap::new();
    for fault in &record.faults {
        *faults.entry(fault.kind.clone()).or_default() += 1;
    }
    println!("faults: {}", counts(&faults));
}

/// Between the end of one hold and the beginning of the next. No promise says how long that may be,
/// as there are faults all the time.
fn longest_pause(certain: &[Certain<'_>]) -> u64 {
    let mut longest = 0;
    let mut held_until = certain.first().map_or(0, |first| first.start);
    for hold in certain {
        longest = longest.max(hold.start.saturating_sub(held_until));
        held_until = held_until.max(hold.end);
    }
    longest / NANOS_PER_MS
}

fn counts(things: &BTreeMap<String, u64>) -> String {
    let words: Vec<String> = things
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    words.join(", ")
}

/// A history that keeps every promise; tests break one at a time.
#[cfg(test)]
const GOOD: &str = "\
0 nemesis begin lock=mutex max=3 session_ms=1000 slack_ms=1000
1 nemesis start process=w0.0
2 nemesis start process=w1.0
1000 w0.0.0 call id=1 verb=wait
2000 w0.0.0 got id=1 right=alone node=/l/a
2100 w0.0.0 token id=1 value=7
3000 w0.0.0 look id=1 state=held began=2900
3100 w0.0.0 give id=1 bound_ms=1
3200 w0.0.0 given id=1 why=dropped
1500 w1.0.0 call id=1 verb=for bound_ms=1000
3300 w1.0.0 got id=1 right=alone node=/l/b
3350 w1.0.0 token id=1 value=8
3400 w1.0.0 look id=1 state=held began=3390
3500 w1.0.0 give id=1 bound_ms=1
3600 w1.0.0 given id=1 why=dropped
4000 w0.0 done
4000 w1.0 done
5000 nemesis left nodes=0 watches=0
6000 nemesis end
";

/// What is wrong with [`GOOD`] after these replacements of text.
#[cfg(test)]
fn wrong_with(changes: &[(&str, &str)]) -> Vec<String> {
    let mut history = GOOD.to_owned();
    for (from, to) in changes {
        assert!(history.contains(from), "nothing to replace: {from}");
        history = history.replace(from, to);
    }
    let mut record = Record::default();
    record.add(&history).expect("it can be read");
    let stories = violations(&record).into_iter();
    stories.map(|violation| violation.story).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_history_is_good() {
        assert_eq!(wrong_with(&[]), Vec::<String>::new());
    }

    #[test]
    fn what_is_left_is_seen() {
        let wrong = wrong_with(&[("nodes=0", "nodes=2")]);
        assert_eq!(wrong, ["2 nodes and 0 watches are left"]);
        let wrong = wrong_with(&[("watches=0", "watches=1")]);
        assert_eq!(wrong, ["0 nodes and 1 watches are left"]);
    }

    #[test]
    fn a_history_in_which_nothing_happened_proves_nothing() {
        let wrong = wrong_with(&[("state=held", "state=lost")]);
        assert!(wrong[0].contains("nobody ever held"), "{wrong:?}");
    }

    #[test]
    fn a_history_without_its_end_is_not_whole() {
        let wrong = wrong_with(&[("6000 nemesis end\n", "")]);
        assert_eq!(wrong, ["the history has no end"]);
    }
}
