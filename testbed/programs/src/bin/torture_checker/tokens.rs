//! Fencing tokens never fall, and no two contenders have one token.

use std::collections::HashMap;

use crate::exclusion::{Certain, certain_holds};
use crate::history::{Record, Right};
use crate::violation::Violation;

pub(crate) fn violations(record: &Record) -> Vec<Violation> {
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
            let (next, before) = (describe(next), describe(before));
            let story = format!("the token {token} of {next} came after {most} of {before}");
            violations.push(Violation::new("token fell", story));
        }
    }
    violations.extend(shared_tokens(&fenced));
    violations
}

/// A store cannot tell two contenders with the same token apart. Threads that take turns with one
/// node have one token rightly; a dash names no node.
fn shared_tokens(fenced: &[(Certain<'_>, u64)]) -> Vec<Violation> {
    let mut owners: HashMap<u64, &Certain<'_>> = HashMap::new();
    let mut violations = Vec::new();
    for (one, token) in fenced.iter().filter(|(one, _)| one.hold.node != "-") {
        let owner = owners.entry(*token).or_insert(one);
        if owner.hold.node != one.hold.node {
            let (one, other) = (describe(one), describe(owner));
            let story = format!("{one} and {other} have the token {token}, with a node each");
            violations.push(Violation::new("token shared", story));
        }
    }
    violations
}

fn describe(certain: &Certain<'_>) -> String {
    format!("{} id={}", certain.hold.thread, certain.name.1)
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
        let one_node = ("node=/l/b", "node=/l/a");
        assert!(wrong_with(&[("value=8", "value=7"), one_node]).is_empty());
    }

    #[test]
    fn one_token_for_two_nodes_is_seen() {
        let wrong = wrong_with(&[("value=8", "value=7")]);
        assert_eq!(
            wrong,
            ["w1.0.0 id=1 and w0.0.0 id=1 have the token 7, with a node each"]
        );
    }

    #[test]
    fn readers_have_no_order() {
        assert!(wrong_with(&[("value=8", "value=6"), ("right=alone", "right=shared")]).is_empty());
    }
}
