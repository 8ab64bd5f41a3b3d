//! Two never hold what only one can.

use crate::history::{Hold, NANOS_PER_MS, Record, Right};

/// A hold, and the time in which it was certain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Certain<'a> {
    pub(crate) name: (&'a str, u64),
    pub(crate) hold: &'a Hold,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Every hold that was certain for a time, by when that began.
pub(crate) fn certain_holds(record: &Record) -> Vec<Certain<'_>> {
    let mut certain: Vec<Certain<'_>> = record
        .holds
        .iter()
        .filter_map(|((process, id), hold)| {
            let end = certain_until(record, hold)?;
            (end > hold.got).then_some(Certain {
                name: (process, *id),
                hold,
                start: hold.got,
                end,
            })
        })
        .collect();
    certain.sort_by_key(|hold| hold.start);
    certain
}

fn certain_until(record: &Record, hold: &Hold) -> Option<u64> {
    let looks = hold.looks.iter().take_while(|look| !look.is_lost);
    let last_look = looks.map(|look| look.began).max()?;
    let removals = record
        .removals
        .iter()
        .filter(|removal| removal.node == hold.node);
    let removed = removals.map(|removal| removal.began).min();
    Some(removed.map_or(last_look, |removed| removed.min(last_look)))
}

pub(crate) fn violations(record: &Record) -> Vec<String> {
    let mut violations = Vec::new();
    let mut standing: Vec<Certain<'_>> = Vec::new();
    for next in certain_holds(record) {
        // What ends at the moment at which another begins does not overlap it.
        standing.retain(|one| one.end > next.start);
        for one in &standing {
            if exclude_each_other(one.hold, next.hold) {
                let overlap = one.end.min(next.end) - next.start;
                violations.push(format!(
                    "two holders for {} ms from {}: {} and {}",
                    overlap.div_ceil(NANOS_PER_MS),
                    next.start,
                    describe(one),
                    describe(&next),
                ));
            }
        }
        standing.push(next);
        let held: u64 = standing.iter().map(|one| permits(one.hold)).sum();
        if held > record.terms.max_permits {
            violations.push(format!(
                "{held} of {} permits from {}, with {}",
                record.terms.max_permits,
                next.start,
                describe(&next),
            ));
        }
    }
    violations
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
