//! A job's period is done once, and no smaller one begins.

use crate::history::{Hold, Record};
use crate::violation::Violation;

pub(crate) fn violations(record: &Record) -> Vec<Violation> {
    let runs = record.holds.iter().filter_map(|(key, hold)| {
        let (period, attempt) = hold.run?;
        Some((hold.token?, period, attempt, key.1, hold))
    });
    let mut runs: Vec<_> = runs.collect();
    runs.sort_unstable_by_key(|(token, ..)| *token);
    let mut violations = Vec::new();
    for pair in runs.windows(2) {
        let (_, before, earlier, before_id, one) = pair[0];
        let (_, after, later, after_id, next) = pair[1];
        let (one_is, next_is) = (describe(one, before_id), describe(next, after_id));
        let mut violate = |kind, what: &str| {
            let story = format!("{next_is} of period {after} {what} {one_is} of period {before}");
            violations.push(Violation::new(kind, story));
        };
        if after < before {
            violate("smaller period", "came after");
        } else if after == before && one.is_done {
            violate("done twice", "ran what was done by");
        } else if after == before && later <= earlier {
            violate("attempts", "counts no more attempts than");
        }
    }
    violations
}

fn describe(hold: &Hold, id: u64) -> String {
    format!("{} id={id}", hold.thread)
}

#[cfg(test)]
mod tests {
    use crate::wrong_with;

    const FIRST: (&str, &str) = (
        "2100 w0.0.0 token id=1 value=7\n",
        "2100 w0.0.0 token id=1 value=7\n2110 w0.0.0 ran id=1 period=5 attempt=1\n",
    );

    fn wrong(second: &str, given: &str) -> Vec<String> {
        let second = format!("3350 w1.0.0 token id=1 value=8\n3360 w1.0.0 ran id=1 {second}\n");
        let given = format!("3200 w0.0.0 given id=1 why={given}");
        wrong_with(&[
            FIRST,
            ("3350 w1.0.0 token id=1 value=8\n", &second),
            ("3200 w0.0.0 given id=1 why=dropped", &given),
        ])
    }

    #[test]
    fn another_period_and_another_attempt_are_right() {
        assert!(wrong("period=6 attempt=1", "unlocked").is_empty());
        assert!(wrong("period=5 attempt=2", "dropped").is_empty());
    }

    #[test]
    fn a_second_run_of_what_was_done_is_seen() {
        let story = "w1.0.0 id=1 of period 5 ran what was done by w0.0.0 id=1 of period 5";
        assert_eq!(wrong("period=5 attempt=2", "unlocked"), [story]);
    }

    #[test]
    fn a_smaller_period_is_seen() {
        let story = "w1.0.0 id=1 of period 4 came after w0.0.0 id=1 of period 5";
        assert_eq!(wrong("period=4 attempt=1", "dropped"), [story]);
    }

    #[test]
    fn an_attempt_that_was_counted_before_is_seen() {
        let story = "w1.0.0 id=1 of period 5 counts no more attempts than w0.0.0 id=1 of period 5";
        assert_eq!(wrong("period=5 attempt=1", "dropped"), [story]);
    }
}
