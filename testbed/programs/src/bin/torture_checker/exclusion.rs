//! Two never hold what only one can.

use crate::history::{Fault, Hold, NANOS_PER_MS, Record, Right, State};
use crate::violation::Violation;

/// A hold, and a time in which it was certain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Certain<'a> {
    pub(crate) name: (&'a str, u64),
    pub(crate) hold: &'a Hold,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Every time for which a hold was certain, by when that began. A hold has several if one who held
/// was unsure in between.
pub(crate) fn certain_holds(record: &Record) -> Vec<Certain<'_>> {
    let mut certain: Vec<Certain<'_>> = record
        .holds
        .iter()
        .flat_map(|((process, id), hold)| {
            let times = certain_times(record, hold).into_iter();
            times.map(move |(start, end)| Certain {
                name: (process, *id),
                hold,
                start,
                end,
            })
        })
        .collect();
    certain.sort_by_key(|hold| hold.start);
    certain
}

/// From the call's return, or the end of the first look that was sure again, to the beginning of the
/// last look that was sure.
fn certain_times(record: &Record, hold: &Hold) -> Vec<(u64, u64)> {
    let mut times = Vec::new();
    let mut since = Some(hold.got);
    for look in &hold.looks {
        match (look.state, since) {
            (State::Held, Some(since)) => times.push((since, look.began)),
            (State::Held, None) => since = Some(look.ended),
            (State::Unsure, _) => since = None,
            (State::Lost, _) => break,
        }
    }
    // Of those that began at one time the last is the longest.
    times.reverse();
    times.dedup_by_key(|(start, _)| *start);
    let removals = record.removals.iter();
    let removals = removals.filter(|removal| removal.node == hold.node);
    let removed = removals.map(|removal| removal.began).min();
    let end_by = removed.unwrap_or(u64::MAX);
    times
        .iter_mut()
        .for_each(|(_, end)| *end = end_by.min(*end));
    times.retain(|(start, end)| start < end);
    times
}

pub(crate) fn violations(record: &Record) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut standing: Vec<Shared<'_>> = Vec::new();
    for next in certain_holds(record) {
        // What ends at the moment at which another begins does not overlap it.
        let over = standing.extract_if(.., |one| one.first.end <= next.start);
        violations.extend(over.filter_map(|one| one.violation(record)));
        for one in &mut standing {
            if exclude_each_other(one.first.hold, next.hold) {
                one.others.push(next);
            }
        }
        let others = Vec::new();
        standing.push(Shared {
            first: next,
            others,
        });
        let held = standing.iter().map(|one| permits(one.first.hold));
        let (held, max) = (held.sum::<u64>(), record.terms.max_permits);
        if held > max {
            let (who, faults) = (describe(&next), faults_at(record, next.start));
            let story = format!(
                "{held} of {max} permits from {}, with {who}{faults}",
                next.start
            );
            violations.push(Violation::new("too many permits", story));
        }
    }
    violations.extend(standing.iter().filter_map(|one| one.violation(record)));
    violations
}

/// A time in which a hold was certain, and those who came into it and had no right to.
struct Shared<'a> {
    first: Certain<'a>,
    others: Vec<Certain<'a>>,
}

impl Shared<'_> {
    /// One for all who came, as it has one cause.
    fn violation(&self, record: &Record) -> Option<Violation> {
        let (first, second) = (&self.first, self.others.first()?);
        let end = self.others.iter().map(|other| other.end).max()?;
        let length = (end.min(first.end) - second.start).div_ceil(NANOS_PER_MS);
        // A session that ended while its process was stopped may be found over a little later.
        let since = second.start.saturating_sub(record.terms.session);
        let process = record.processes.get(first.name.0);
        let is_stopped =
            process.is_some_and(|process| process.stopped_between(since, first.end) > 0);
        let kind = if is_stopped {
            "two holders, the first of them stopped"
        } else {
            "two holders"
        };
        let more = match self.others.len() {
            1 => String::new(),
            others => format!(" and {} more", others - 1),
        };
        let story = format!(
            "{kind} for {length} ms from {}: {} and {}{more}{}",
            second.start,
            describe(first),
            describe(second),
            faults_at(record, second.start),
        );
        Some(Violation::new(kind, story))
    }
}

fn exclude_each_other(one: &Hold, other: &Hold) -> bool {
    let one_is_alone = one.right == Right::Alone || other.right == Right::Alone;
    // A thread may enter what it holds again.
    one_is_alone && one.thread != other.thread
}

fn permits(hold: &Hold) -> u64 {
    match hold.right {
        Right::Permits(count) => count,
        Right::Alone | Right::Shared => 0,
    }
}

/// What was going wrong at this time, for those who look for the cause.
fn faults_at(record: &Record, time: u64) -> String {
    let stands = |fault: &&Fault| fault.began <= time && fault.mended.is_some_and(|end| end > time);
    let faults = record.faults.iter().filter(stands);
    let words: Vec<String> = faults
        .map(|Fault { kind, place, .. }| match place {
            Some(place) => format!("{kind} w{place}"),
            None => kind.clone(),
        })
        .collect();
    if words.is_empty() {
        return String::new();
    }
    format!(", during {}", words.join(" and "))
}

fn describe(certain: &Certain<'_>) -> String {
    let Certain {
        name,
        hold,
        start,
        end,
    } = certain;
    format!(
        "{} id={} ({:?} {}..{})",
        hold.thread, name.1, hold.right, start, end
    )
}

#[cfg(test)]
mod tests {
    use crate::wrong_with;

    const OVERLAP: (&str, &str) = ("began=2900", "began=3350");

    #[test]
    fn two_who_hold_at_one_time_are_seen() {
        let wrong = wrong_with(&[OVERLAP]);
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(
            wrong[0].starts_with("two holders for 1 ms from 3300"),
            "{wrong:?}"
        );
    }

    #[test]
    fn one_who_believes_that_nobody_else_can_hold_yet_holds() {
        let wrong = wrong_with(&[OVERLAP, ("state=held", "state=suspect")]);
        assert!(wrong[0].starts_with("two holders"), "{wrong:?}");
    }

    /// It may have been stopped between its last look and what it did then.
    #[test]
    fn one_who_was_told_at_the_next_look_did_not_hold_between() {
        let told =
            "3400 w0.0.0 look id=1 state=lost began=3350\n3401 w0.0.0 told id=1\n3402 w0.0.0 give";
        assert!(wrong_with(&[("3100 w0.0.0 give", told)]).is_empty());
    }

    #[test]
    fn one_who_is_unsure_holds_nothing_till_sure_again() {
        let unsure = ("state=held began=2900", "state=unsure began=3350");
        assert!(wrong_with(&[unsure]).is_empty());
        let sure_again = (
            "3000 w0.0.0 look",
            "2500 w0.0.0 look id=1 state=unsure began=2400\n\
             3000 w0.0.0 look id=1 state=held began=2900\n3050 w0.0.0 look",
        );
        let wrong = wrong_with(&[OVERLAP, sure_again]);
        assert!(
            wrong[0].starts_with("two holders for 1 ms from 3300"),
            "{wrong:?}"
        );
        assert!(wrong[0].contains("3000..3350"), "{wrong:?}");
    }

    #[test]
    fn one_whose_process_was_stopped_is_told_apart() {
        let stop =
            "3320 nemesis stop process=w0.0\n3340 nemesis cont process=w0.0\n5000 nemesis left";
        let wrong = wrong_with(&[OVERLAP, ("5000 nemesis left", stop)]);
        let kind = "two holders, the first of them stopped for 1 ms from 3300";
        assert!(wrong[0].starts_with(kind), "{wrong:?}");
    }

    #[test]
    fn all_who_came_into_one_hold_are_one_violation() {
        let third = "1600 w2.0.0 call id=1 verb=wait\n3345 w2.0.0 got id=1 right=alone node=/l/c\n\
                     3400 w2.0.0 look id=1 state=held began=3348\n3500 w2.0.0 give id=1\n\
                     3600 w2.0.0 given id=1 why=dropped\n3600 w2.0 done\n5000 nemesis left";
        let wrong = wrong_with(&[
            OVERLAP,
            ("began=3390", "began=3340"),
            ("5000 nemesis left", third),
        ]);
        let holders = wrong.iter().filter(|one| one.starts_with("two holders"));
        assert_eq!(holders.count(), 1, "{wrong:?}");
        assert!(wrong[0].contains(" and 1 more"), "{wrong:?}");
    }

    #[test]
    fn what_went_wrong_then_is_named() {
        let fault = "3200 nemesis fault kind=worker-stopped place=1\n3250 nemesis fault kind=links-reset\n\
                     3360 nemesis mended kind=worker-stopped\n5000 nemesis left";
        let wrong = wrong_with(&[OVERLAP, ("5000 nemesis left", fault)]);
        assert!(
            wrong[0].ends_with(", during worker-stopped w1"),
            "{wrong:?}"
        );
    }

    #[test]
    fn readers_hold_together_and_writers_do_not() {
        assert!(wrong_with(&[OVERLAP, ("right=alone", "right=shared")]).is_empty());
        let one_writes = (
            "got id=1 right=alone node=/l/a",
            "got id=1 right=shared node=/l/a",
        );
        let wrong = wrong_with(&[OVERLAP, one_writes]);
        assert!(wrong[0].starts_with("two holders"), "{wrong:?}");
    }

    #[test]
    fn a_thread_may_enter_again() {
        let again = "2500 w0.0.0 call id=2 verb=try\n2600 w0.0.0 got id=2 right=alone node=/l/a\n\
                     2700 w0.0.0 look id=2 state=held began=2650\n2750 w0.0.0 give id=2\n\
                     2800 w0.0.0 given id=2 why=dropped\n3000 w0.0.0 look";
        assert!(wrong_with(&[("3000 w0.0.0 look", again)]).is_empty());
        let of_another_thread = again
            .replace("w0.0.0", "w0.0.1")
            .replace("3000 w0.0.1", "3000 w0.0.0");
        let wrong = wrong_with(&[("3000 w0.0.0 look", &of_another_thread)]);
        assert!(wrong[0].starts_with("two holders"), "{wrong:?}");
    }

    #[test]
    fn more_permits_than_there_are_are_seen() {
        let two_each = [OVERLAP, ("right=alone", "right=permits:2")];
        let wrong = wrong_with(&two_each);
        assert!(
            wrong[0].starts_with("4 of 3 permits from 3300"),
            "{wrong:?}"
        );
        assert!(wrong_with(&[OVERLAP, ("right=alone", "right=permits:1")]).is_empty());
    }

    #[test]
    fn a_removed_node_holds_nothing_from_then_on() {
        let removal =
            "3050 nemesis remove node=/l/a\n3060 nemesis removed node=/l/a\n3100 w0.0.0 give";
        assert!(wrong_with(&[OVERLAP, ("3100 w0.0.0 give", removal)]).is_empty());
        let of_another = removal.replace("/l/a", "/l/c");
        let wrong = wrong_with(&[OVERLAP, ("3100 w0.0.0 give", &of_another)]);
        assert!(wrong[0].starts_with("two holders"), "{wrong:?}");
    }
}
