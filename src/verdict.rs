//! Who holds: decided from a list of children, without asking anybody.

use std::collections::HashMap;

use crate::names::{Contender, Grammar};
use crate::sequence::Sequence;

/// Where a contender stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// First in the queue.
    Held {
        /// Somebody waits behind.
        others_behind: bool,
    },
    /// Somebody is ahead.
    Wait {
        /// The node just ahead: the one to wait for.
        on: String,
        /// How many are ahead.
        ahead: usize,
    },
    /// These have one and the same number, ours among them: their transactions must be asked for.
    Tied { with: Vec<String> },
    /// Our node is not in the list. Whoever is first now, it is not we.
    Gone,
}

/// The transactions that made nodes with equal numbers.
pub(crate) type TieOrder = HashMap<String, i64>;

/// Decides for the contender named `own`.
pub(crate) fn verdict(
    grammar: &Grammar,
    own: &str,
    children: &[String],
    ties: &TieOrder,
) -> Verdict {
    let Some(own) = children
        .iter()
        .find(|child| *child == own)
        .and_then(|child| grammar.parse(child))
    else {
        return Verdict::Gone;
    };
    // The number of creates that the nearest one ahead is away, and its transaction.
    let mut nearest: Option<((i32, i64), &str)> = None;
    let (mut ahead, mut others_behind) = (0, false);
    let mut tied = Vec::new();
    for other in children.iter().filter_map(|child| grammar.parse(child)) {
        if other.name == own.name {
            continue;
        }
        let distance = other.sequence.distance_from(own.sequence);
        let place = if distance == 0 {
            match (ties.get(other.name), ties.get(own.name)) {
                (Some(theirs), Some(ours)) => (0, theirs - ours),
                _ => {
                    tied.push(other.name.to_owned());
                    continue;
                }
            }
        } else {
            // Equal numbers further ahead are as far away as each other; only the nearest matters,
            // and of those any is ahead of us.
            (distance, ties.get(other.name).copied().unwrap_or(0))
        };
        if place.0 < 0 || (place.0 == 0 && place.1 < 0) {
            ahead += 1;
            if nearest.is_none_or(|(nearest, _)| place > nearest) {
                nearest = Some((place, other.name));
            }
        } else {
            others_behind = true;
        }
    }
    if !tied.is_empty() {
        tied.push(own.name.to_owned());
        return Verdict::Tied { with: tied };
    }
    match nearest {
        Some((_, on)) => Verdict::Wait {
            on: on.to_owned(),
            ahead,
        },
        None => Verdict::Held { others_behind },
    }
}

/// The contenders in order. Those with equal numbers stand side by side.
pub(crate) fn queue<'a>(grammar: &Grammar, children: &'a [String]) -> Vec<Contender<'a>> {
    let mut contenders: Vec<_> = children
        .iter()
        .filter_map(|child| grammar.parse(child))
        .collect();
    // Any live contender will do to measure from: all are within half the range of it.
    let anchor = contenders.first().map_or(Sequence(0), |one| one.sequence);
    contenders.sort_by_key(|contender| contender.sequence.distance_from(anchor));
    contenders
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::subsequence;
    use uuid::Uuid;

    use super::*;
    use crate::names::{Class, Dialect};

    fn grammar() -> Grammar {
        Grammar::mutex(Dialect::Curator, None)
    }

    fn node(guid: usize, number: i32) -> String {
        let prefix = grammar().prefix(Uuid::from_u128(guid as u128), Class::Exclusive);
        format!("{prefix}{}", Sequence(number))
    }

    fn decide(own: &str, children: &[String]) -> Verdict {
        verdict(&grammar(), own, children, &TieOrder::default())
    }

    #[test]
    fn first_of_all_holds() {
        let (a, b) = (node(2, 7), node(1, 8));
        let children = [b.clone(), "hello".into(), a.clone()];
        assert_eq!(
            decide(&a, &children),
            Verdict::Held {
                others_behind: true
            }
        );
        let wait = Verdict::Wait { on: a, ahead: 1 };
        assert_eq!(decide(&b, &children), wait);
        assert_eq!(
            decide(&b, std::slice::from_ref(&b)),
            Verdict::Held {
                others_behind: false
            }
        );
    }

    /// etcd's and go-zookeeper's clients have concluded "I am first" from a list in which they
    /// were not (etcd 3.4.3).
    #[test]
    fn who_is_not_listed_holds_nothing() {
        assert_eq!(decide(&node(1, 1), &[]), Verdict::Gone);
        assert_eq!(decide(&node(1, 1), &[node(2, 2)]), Verdict::Gone);
    }

    /// After 2147483647 the numbers are negative, and would come first as signed numbers.
    #[test]
    fn a_newcomer_after_the_overflow_does_not_overtake() {
        let (holder, newcomer) = (node(1, i32::MAX), node(2, i32::MIN));
        let children = [newcomer.clone(), holder.clone()];
        assert_eq!(
            decide(&holder, &children),
            Verdict::Held {
                others_behind: true
            }
        );
        let wait = Verdict::Wait {
            on: holder,
            ahead: 1,
        };
        assert_eq!(decide(&newcomer, &children), wait);
    }

    #[test]
    fn equal_numbers_are_told_apart_by_transaction() {
        let nodes: Vec<_> = (0..3).map(|guid| node(guid, i32::MAX)).collect();
        let Verdict::Tied { with } = decide(&nodes[1], &nodes) else {
            panic!("must ask");
        };
        assert_eq!(with.len(), 3);
        let ties: TieOrder = nodes.iter().cloned().zip([30, 20, 10]).collect();
        let decided = |own: &String| verdict(&grammar(), own, &nodes, &ties);
        assert_eq!(
            decided(&nodes[2]),
            Verdict::Held {
                others_behind: true
            }
        );
        let wait = |on: &String, ahead| Verdict::Wait {
            on: on.clone(),
            ahead,
        };
        assert_eq!(decided(&nodes[1]), wait(&nodes[2], 1));
        assert_eq!(decided(&nodes[0]), wait(&nodes[1], 2));
    }

    proptest! {
        /// Against the brute-force model: contenders in the order in which they were created, any
        /// of them gone since, listed in any order, numbered from anywhere, across the overflow.
        #[test]
        fn agrees_with_the_order_of_creation(
            start: i32,
            alive in subsequence((0..40).collect::<Vec<usize>>(), 1..40),
            shuffle in any::<prop::sample::Index>(),
        ) {
            let name = |index: usize| {
                let number = start.wrapping_add(i32::try_from(index).expect("small"));
                node(index * 7919 % 101, number)
            };
            let mut children: Vec<_> = alive.iter().map(|index| name(*index)).collect();
            children.rotate_left(shuffle.index(alive.len()));
            children.push("stranger".into());
            for (position, index) in alive.iter().enumerate() {
                let expected = match position.checked_sub(1) {
                    None => Verdict::Held { others_behind: alive.len() > 1 },
                    Some(before) => Verdict::Wait { on: name(alive[before]), ahead: position },
                };
                prop_assert_eq!(decide(&name(*index), &children), expected);
            }
            let queued: Vec<_> = queue(&grammar(), &children)
                .iter()
                .map(|contender| contender.name.to_owned())
                .collect();
            prop_assert_eq!(queued, alive.iter().map(|index| name(*index)).collect::<Vec<_>>());
        }
    }
}
