//! What must not be.

use std::collections::BTreeMap;

/// One promise that was broken once.
#[derive(Debug)]
pub(crate) struct Violation {
    /// The promise, in a few words.
    kind: &'static str,
    /// Who broke it when.
    pub(crate) story: String,
}

impl Violation {
    pub(crate) fn new(kind: &'static str, story: String) -> Violation {
        Violation { kind, story }
    }
}

/// How many there are, in all and of each kind.
pub(crate) fn summary(violations: &[Violation]) -> String {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for violation in violations {
        *kinds.entry(violation.kind).or_default() += 1;
    }
    let mut summary = violations.len().to_string();
    for (place, (kind, count)) in kinds.iter().enumerate() {
        let before = if place == 0 { ": " } else { ", " };
        summary += &format!("{before}{kind} {count}");
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_each_kind() {
        assert_eq!(summary(&[]), "0");
        let violations = ["late", "two holders", "late"];
        let violations = violations.map(|kind| Violation::new(kind, String::new()));
        assert_eq!(summary(&violations), "3: late 2, two holders 1");
    }
}
