//! Fencing tokens never fall.

use crate::exclusion::{Certain, certain_holds};
use crate::history::{Record, Right};

pub(crate) fn violations(record: &Record) -> Vec<String> {
    let mut violations = Vec::new();
    let fenced: Vec<(Certain<'_>, u64)> = certain_holds(record)
        .into_iter()
        .filter(|one| one.hold.right == Right::Alone)
        .filter_map(|one| Some((one, one.hold.token?)))
        .collect();
    let mut by_end = fenced.clone();
    by_end.sort_by_key(|(one, _)| one.end);
    let mut ended = by_end.iter().peekable();
    let mut largest: Option<&(Certain<'_>, u64)> = None;
    for (next, token) in &fenced {
        // Only those who had certainly held before; who held at the same time is not in order.
        while let Some(before) = ended.next_if(|(before, _)| before.end <= next.start) {
            if largest.is_none_or(|(_, most)| *most <= before.1) {
                largest = Some(before);
            }
        }
        if let Some((before, most)) = largest.filter(|(_, most)| most > token) {
            violations.push(format!(
                "the token {token} of {} id={} came after {most} of {} id={}",
                next.hold.thread, next.name.1, before.hold.thread, before.name.1,
            ));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use crate::wrong_with;

    #[test]
    fn a_token_that_falls_is_seen() {
        let wrong = wrong_with(&[("value=8", "value=6")]);
        assert_eq!(
            wrong,
            ["the token 6 of w1.0.0 id=1 came after 7 of w0.0.0 id=1"]
        );
    }

    #[test]
    fn one_token_for_a_whole_tenure_is_right() {
        assert!(wrong_with(&[("value=8", "value=7")]).is_empty());
    }

    #[test]
    fn readers_have_no_order() {
        assert!(wrong_with(&[("value=8", "value=6"), ("right=alone", "right=shared")]).is_empty());
    }
}
