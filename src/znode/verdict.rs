//! Who holds: decided from a list of children, without asking anybody.

use std::cmp::Ordering;
use std::collections::HashMap;

use zklock_protocol::Children;

use crate::znode::names::{Class, ContenderName, Grammar};
use crate::znode::sequence::Sequence;

/// Whom a contender must wait for.
///
/// There is no rule "at most n": which of the n ahead goes first is open, so there is no one node
/// to wait for. A semaphore lets one waiter at a time count the leases, and watch their folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// All who are ahead.
    Exclusive,
    /// The writers who are ahead. Later ones wait for us: a reader that counted them, too, would
    /// wait for somebody who waits for it.
    Reader,
}

impl Rule {
    pub(crate) fn of(class: Class) -> Self {
        match class {
            Class::Read => Self::Reader,
            _ => Self::Exclusive,
        }
    }

    pub(crate) fn is_blocked_by(self, class: Class) -> bool {
        match self {
            Self::Exclusive => true,
            Self::Reader => class == Class::Write,
        }
    }
}

/// A contender's place, as the list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nobody ahead is to be waited for.
    Held {
        /// Somebody who came later waits for us, or for one who waits for us.
        others_behind: bool,
    },
    /// Somebody ahead is to be waited for.
    Wait {
        /// The nearest of them: the node to watch.
        on: String,
        /// How many of them there are. If it is one, nobody is to be waited for once that one
        /// has gone.
        ahead: usize,
    },
    /// The numbers do not tell whether these or ours came first. Their transactions must be asked
    /// for, ours among them, and added to the [`TieOrder`].
    Tied { with: Vec<String> },
    /// Our node is not in the list. Whoever is first now, it is not we.
    Gone,
}

/// The transactions (`czxid`) that made nodes whose numbers do not tell their order.
pub(crate) type TieOrder = HashMap<String, i64>;

/// Decides for the contender named `own`, under a rule.
pub(crate) fn verdict_by(
    rule: Rule,
    grammar: &Grammar,
    own: &str,
    children: &Children,
    ties: &TieOrder,
) -> Verdict {
    let Some(own) = grammar.parse(own) else {
        debug_assert!(false, "{own} is no name of ours");
        return Verdict::Gone;
    };
    let is_behind = |number: Sequence| own.sequence.order(number) == Some(Ordering::Less);
    let mut nearest: Option<ContenderName<'_>> = None;
    let (mut is_listed, mut ahead, mut others_behind) = (false, 0, false);
    let mut tied = Vec::new();
    for child in children.iter() {
        // Whoever comes to hold a lock that a thousand want would else look at all of them.
        if others_behind && grammar.number(child).is_some_and(is_behind) {
            continue;
        }
        if child == own.name {
            is_listed = true;
            continue;
        }
        let Some(other) = grammar.parse(child) else {
            continue;
        };
        let blocks = rule.is_blocked_by(other.class);
        match order(&other, &own, ties) {
            Some(Ordering::Less) if blocks => {
                ahead += 1;
                // Where the order of two who are ahead is not known, either will do: the other is
                // found when we look again.
                let nearer = |than: &ContenderName<'_>| order(&other, than, ties);
                if nearest.is_none_or(|than| nearer(&than) == Some(Ordering::Greater)) {
                    nearest = Some(other);
                }
            }
            Some(Ordering::Less) => {}
            None if blocks => tied.push(other.name),
            // Readers let later readers in.
            Some(_) | None => others_behind |= blocks,
        }
    }
    if !is_listed {
        return Verdict::Gone;
    }
    if !tied.is_empty() {
        tied.push(own.name);
        tied.retain(|name| !ties.contains_key(*name));
        let with = tied.into_iter().map(str::to_owned).collect();
        return Verdict::Tied { with };
    }
    match nearest {
        Some(on) => Verdict::Wait {
            on: on.name.to_owned(),
            ahead,
        },
        None => Verdict::Held { others_behind },
    }
}

/// The contender with the largest number; `None` also if a stranger's name ends in a larger one.
pub(crate) fn last<'a>(grammar: &Grammar, children: &'a Children) -> Option<ContenderName<'a>> {
    let numbered = children
        .iter()
        .filter_map(|child| Some((grammar.number(child)?.0, child)));
    let (_, name) = numbered.max()?;
    grammar.parse(name)
}

/// Whether nobody that waits for the contender named `own` has surely or perhaps come after it.
pub(crate) fn nobody_behind(rule: Rule, grammar: &Grammar, own: &str, children: &Children) -> bool {
    let Some(own) = grammar.parse(own) else {
        return false;
    };
    let others = children.iter().filter_map(|child| grammar.parse(child));
    others
        .filter(|other| other.name != own.name && rule.is_blocked_by(other.class))
        .all(|other| order(&other, &own, &TieOrder::default()) == Some(Ordering::Less))
}

/// Which of two was created first, if that is known.
fn order(a: &ContenderName<'_>, b: &ContenderName<'_>, ties: &TieOrder) -> Option<Ordering> {
    a.sequence.order(b.sequence).or_else(|| {
        let (made_a, made_b) = (ties.get(a.name)?, ties.get(b.name)?);
        // One transaction can make several nodes (a multi). Any order will do that everybody
        // sees alike; with none, both would hold.
        Some(made_a.cmp(made_b).then_with(|| a.name.cmp(b.name)))
    })
}

/// The contenders, for people to look at: in order as far as the numbers tell (see [`Sequence`]).
pub(crate) fn queue<'a>(grammar: &Grammar, children: &'a Children) -> Vec<ContenderName<'a>> {
    let listed = children.iter().filter_map(|child| grammar.parse(child));
    let mut contenders: Vec<_> = listed.collect();
    // Any live contender will do to measure from: all are within half the range of it.
    let anchor = contenders.first().map_or(Sequence(0), |one| one.sequence);
    contenders.sort_by_key(|contender| contender.sequence.distance_from(anchor));
    contenders
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::{Index, subsequence};
    use uuid::Uuid;

    use super::*;
    use crate::znode::label::RwLabels;
    use crate::znode::names::Dialect;

    /// A node of a simulated folder. Its place in the list of them is its transaction.
    #[derive(Clone, Debug)]
    struct Node {
        name: String,
        class: Class,
    }

    fn mutex() -> Grammar {
        Grammar::mutex(Dialect::Curator, None)
    }

    fn any_readers_and_writers() -> impl Strategy<Value = Grammar> {
        let home_grown = RwLabels::new("-R-".into(), "-W-".into()).expect("good");
        prop_oneof![
            Just(Grammar::rw(Dialect::Curator)),
            Just(Grammar::rw(Dialect::Kazoo)),
            Just(Grammar::rw_labelled(home_grown)),
        ]
    }

    fn node_of(grammar: &Grammar, class: Class, guid: usize, number: i32) -> Node {
        let prefix = grammar.prefix(Uuid::from_u128(guid as u128), class);
        let name = format!("{prefix}{}", Sequence(number));
        Node { name, class }
    }

    fn node(guid: usize, number: i32) -> String {
        node_of(&mutex(), Class::Exclusive, guid, number).name
    }

    fn verdict_of(
        rule: Rule,
        grammar: &Grammar,
        own: &str,
        children: &[String],
        ties: &TieOrder,
    ) -> Verdict {
        let children = children.iter().collect();
        verdict_by(rule, grammar, own, &children, ties)
    }

    fn decide(own: &str, children: &[String]) -> Verdict {
        verdict_of(
            Rule::Exclusive,
            &mutex(),
            own,
            children,
            &TieOrder::default(),
        )
    }

    const fn held(others_behind: bool) -> Verdict {
        Verdict::Held { others_behind }
    }

    fn wait(on: &str, ahead: usize) -> Verdict {
        let on = on.to_owned();
        Verdict::Wait { on, ahead }
    }

    #[test]
    fn first_of_all_holds() {
        let (a, b) = (node(2, 7), node(1, 8));
        let children = [b.clone(), "hello".into(), a.clone()];
        assert_eq!(decide(&a, &children), held(true));
        assert_eq!(decide(&b, &children), wait(&a, 1));
        assert_eq!(decide(&b, &[b.clone(), "hello".into()]), held(false));
    }

    /// Its number alone makes nobody a contender, and once one is known to wait behind us the
    /// numbers of all who are behind are all that is looked at.
    #[test]
    fn only_contenders_are_behind() {
        let (own, later) = (node(1, 7), node(2, 8));
        let stranger = "x-lock-0000000009".to_owned();
        let listed = |names: &[&String]| names.iter().copied().cloned().collect::<Vec<_>>();
        assert_eq!(decide(&own, &listed(&[&stranger, &own])), held(false));
        assert_eq!(
            decide(&own, &listed(&[&later, &stranger, &own])),
            held(true)
        );
        let ahead = node(3, 6);
        let children = listed(&[&later, &stranger, &ahead, &own]);
        assert_eq!(decide(&own, &children), wait(&ahead, 1));
        assert_eq!(decide(&node(4, 7), &children[..2]), Verdict::Gone);
    }

    #[test]
    fn the_last_has_the_largest_number() {
        let last_of = |children: &[String]| {
            let children = children.iter().collect();
            last(&mutex(), &children).map(|last| last.name.to_owned())
        };
        let nodes = [node(9, 3), node(1, 11), "hello".to_owned(), node(5, 9)];
        assert_eq!(last_of(&nodes), Some(nodes[1].clone()));
        assert_eq!(
            last_of(&[nodes[0].clone(), "x-lock-0000000004".into()]),
            None
        );
        assert_eq!(last_of(&[]), None);
    }

    #[test]
    fn waits_for_the_nearest_whatever_the_list_order() {
        let nodes = [node(1, 3), node(2, 9), node(3, 5), node(4, 10)];
        assert_eq!(decide(&nodes[3], &nodes), wait(&nodes[1], 3));
        assert_eq!(decide(&nodes[2], &nodes), wait(&nodes[0], 1));
    }

    /// etcd's and go-zookeeper's clients have concluded "I am first" from a list in which they
    /// were not (etcd 3.4.3).
    #[test]
    fn who_is_not_listed_holds_nothing() {
        assert_eq!(decide(&node(1, 1), &[]), Verdict::Gone);
        assert_eq!(decide(&node(1, 1), &[node(2, 2)]), Verdict::Gone);
    }

    /// With pipelined creates a 3.8.0 server has given -2147483648 to a node, and then 2147483647
    /// to a later one. By distance the later one is one step ahead, and both held.
    #[test]
    fn a_newcomer_past_the_end_does_not_overtake() {
        let (holder, newcomer) = (node(1, i32::MIN), node(2, i32::MAX));
        let children = [newcomer.clone(), holder.clone()];
        let Verdict::Tied { mut with } = decide(&newcomer, &children) else {
            panic!("the numbers do not tell");
        };
        with.sort();
        assert_eq!(with, [holder.clone(), newcomer.clone()]);
        let ties: TieOrder = [(holder.clone(), 10), (newcomer.clone(), 12)].into();
        let decided = |own: &String| verdict_of(Rule::Exclusive, &mutex(), own, &children, &ties);
        assert_eq!(decided(&holder), held(true));
        assert_eq!(decided(&newcomer), wait(&holder, 1));
    }

    #[test]
    fn equal_numbers_are_told_apart_by_transaction() {
        let nodes: Vec<_> = (0..3).map(|guid| node(guid, i32::MAX)).collect();
        let Verdict::Tied { with } = decide(&nodes[1], &nodes) else {
            panic!("must ask");
        };
        assert_eq!(with.len(), 3);
        let ties: TieOrder = nodes.iter().cloned().zip([30, 20, 10]).collect();
        let decided = |own: &String| verdict_of(Rule::Exclusive, &mutex(), own, &nodes, &ties);
        assert_eq!(decided(&nodes[2]), held(true));
        assert_eq!(decided(&nodes[1]), wait(&nodes[2], 1));
        assert_eq!(decided(&nodes[0]), wait(&nodes[1], 2));
        // Only what is not known yet is asked for.
        let known: TieOrder = [(nodes[0].clone(), 30), (nodes[1].clone(), 20)].into();
        let with = vec![nodes[2].clone()];
        let asked = verdict_of(Rule::Exclusive, &mutex(), &nodes[1], &nodes, &known);
        assert_eq!(asked, Verdict::Tied { with });
    }

    #[test]
    fn nodes_of_one_transaction_do_not_both_hold() {
        let nodes = [node(1, i32::MAX), node(2, i32::MAX)];
        let ties: TieOrder = nodes.iter().map(|name| (name.clone(), 9)).collect();
        let decided = |own: &String| verdict_of(Rule::Exclusive, &mutex(), own, &nodes, &ties);
        assert_eq!(decided(&nodes[0]), held(true));
        assert_eq!(decided(&nodes[1]), wait(&nodes[0], 1));
    }

    /// kazoo's readers once counted later writers, who waited for them.
    #[test]
    fn readers_wait_for_the_writers_ahead_only() {
        let grammar = Grammar::rw(Dialect::Curator);
        let made = |class, number| node_of(&grammar, class, 1, number).name;
        let (first, writer) = (made(Class::Read, 1), made(Class::Write, 2));
        let (second, third) = (made(Class::Read, 3), made(Class::Read, 4));
        let children = [&third, &writer, &first, &second].map(Clone::clone);
        let ties = TieOrder::default();
        let read = |own: &str| verdict_of(Rule::Reader, &grammar, own, &children, &ties);
        assert_eq!(read(&first), held(true));
        assert_eq!(read(&second), wait(&writer, 1));
        assert_eq!(read(&third), wait(&writer, 1));
        let write = verdict_of(Rule::Exclusive, &grammar, &writer, &children, &ties);
        assert_eq!(write, wait(&first, 1));
    }

    /// Curator's downgrade makes a plain node with the number of the write node that is held, and
    /// deletes the write node later. A writer that queued in between waits for both.
    #[test]
    fn a_downgraded_reader_keeps_its_writers_place() {
        let grammar = Grammar::rw(Dialect::Curator);
        let held_write = node_of(&grammar, Class::Write, 1, 5).name;
        let downgraded = node_of(&grammar, Class::Read, 2, 5).name;
        let waiting = node_of(&grammar, Class::Write, 3, 6).name;
        let both = [held_write, downgraded.clone(), waiting.clone()];
        let ties = TieOrder::default();
        let decided = |children| verdict_of(Rule::Exclusive, &grammar, &waiting, children, &ties);
        assert!(matches!(decided(&both), Verdict::Wait { ahead: 2, .. }));
        assert_eq!(decided(&both[1..]), wait(&downgraded, 1));
    }

    /// The names that a server gives to creates in bursts: the creates of a burst overtake each
    /// other, so the count runs on and turns negative; when they are done it is 2147483647.
    fn created(grammar: &Grammar, start: i32, bursts: &[(usize, Class)]) -> Vec<Node> {
        let mut count = start;
        let mut nodes = Vec::new();
        for (size, class) in bursts {
            let mut running = count;
            for _ in 0..*size {
                // Not in the order of creation, as GUIDs are not.
                let guid = nodes.len() * 7919 % 101;
                nodes.push(node_of(grammar, *class, guid, running));
                count = count.max(running.saturating_add(1));
                running = running.wrapping_add(1);
            }
        }
        nodes
    }

    /// Decides as a recipe does: asks for what the verdict wants to know, once.
    fn ask(rule: Rule, grammar: &Grammar, own: &str, children: &[String], all: &[Node]) -> Verdict {
        let czxid = |name: &String| all.iter().position(|node| node.name == *name);
        let decide = |ties: &TieOrder| verdict_of(rule, grammar, own, children, ties);
        match decide(&TieOrder::default()) {
            Verdict::Tied { with } => {
                let asked = with.into_iter().map(|name| {
                    let czxid = czxid(&name).expect("only contenders are asked for");
                    (name, i64::try_from(czxid).expect("few"))
                });
                decide(&asked.collect())
            }
            decided => decided,
        }
    }

    /// Near zero, near the end, past it, and anywhere.
    fn any_start() -> impl Strategy<Value = i32> {
        let end = (i32::MAX - 12)..=i32::MAX;
        prop_oneof![2 => 0..40, 4 => end, 1 => 0..=i32::MAX]
    }

    fn any_bursts(classes: &'static [Class]) -> impl Strategy<Value = Vec<(usize, Class)>> {
        let burst = (1..5_usize, prop::sample::select(classes));
        prop::collection::vec(burst, 1..12)
    }

    fn listed(alive: &[&Node], turn: Index) -> Vec<String> {
        let mut children: Vec<_> = alive.iter().map(|node| node.name.clone()).collect();
        children.rotate_left(turn.index(alive.len()));
        children.push("stranger".into());
        children.insert(0, "x-72057594037927936-0000000007".into());
        children
    }

    /// Some of them, in the order of creation; at least one.
    fn still_alive(nodes: &[Node], picks: &[Index]) -> Vec<Node> {
        let dead: Vec<_> = picks.iter().map(|pick| pick.index(nodes.len())).collect();
        let last = nodes.len() - 1;
        let alive = nodes.iter().enumerate();
        let alive = alive.filter(|(at, _)| *at == last || !dead.contains(at));
        alive.map(|(_, node)| node.clone()).collect()
    }

    proptest! {
        /// Against the brute-force model, the order of creation: the first holds, each other one
        /// waits for its predecessor. So there is one holder, nobody is waited for by two, and no
        /// circle.
        #[test]
        fn exclusive_agrees_with_the_order_of_creation(
            start in any_start(),
            bursts in any_bursts(&[Class::Exclusive]),
            dead: [Index; 6],
            turn: Index,
        ) {
            let nodes = created(&mutex(), start, &bursts);
            let alive = still_alive(&nodes, &dead);
            let children = listed(&alive.iter().collect::<Vec<_>>(), turn);
            for (place, own) in alive.iter().enumerate() {
                let decided = ask(Rule::Exclusive, &mutex(), &own.name, &children, &nodes);
                let expected = match place.checked_sub(1) {
                    None => held(alive.len() > 1),
                    Some(before) => wait(&alive[before].name, place),
                };
                prop_assert_eq!(decided, expected);
            }
            for gone in nodes.iter().filter(|node| !children.contains(&node.name)) {
                let decided = ask(Rule::Exclusive, &mutex(), &gone.name, &children, &nodes);
                prop_assert_eq!(decided, Verdict::Gone);
            }
        }

        /// Against the same model: a reader waits for the last writer before it, a writer for
        /// whoever is before it. So a writer holds alone.
        #[test]
        fn readers_and_writers_agree_with_the_order_of_creation(
            grammar in any_readers_and_writers(),
            start in any_start(),
            bursts in any_bursts(&[Class::Read, Class::Write]),
            dead: [Index; 6],
            turn: Index,
        ) {
            let nodes = created(&grammar, start, &bursts);
            let alive = still_alive(&nodes, &dead);
            let children = listed(&alive.iter().collect::<Vec<_>>(), turn);
            let mut holders = Vec::new();
            for (place, own) in alive.iter().enumerate() {
                let rule = match own.class {
                    Class::Read => Rule::Reader,
                    _ => Rule::Exclusive,
                };
                let blockers: Vec<_> = alive[..place]
                    .iter()
                    .filter(|other| rule == Rule::Exclusive || other.class == Class::Write)
                    .collect();
                let decided = ask(rule, &grammar, &own.name, &children, &nodes);
                match (blockers.last(), &decided) {
                    (None, Verdict::Held { .. }) => holders.push(own.class),
                    (Some(last), _) => prop_assert_eq!(decided, wait(&last.name, blockers.len())),
                    (None, _) => prop_assert!(false, "{decided:?} with nobody ahead"),
                }
            }
            prop_assert!(!holders.is_empty());
            prop_assert!(holders.len() == 1 || !holders.contains(&Class::Write));
        }

        /// Of lists that were read at different times, each shows one holder, and none shows
        /// another one while the first is alive.
        #[test]
        fn nobody_takes_over_from_the_living(
            start in any_start(),
            bursts in any_bursts(&[Class::Exclusive]),
            released: Index,
            seen in 1..5_usize,
            turn: Index,
        ) {
            let nodes = created(&mutex(), start, &bursts);
            let alive = &nodes[released.index(nodes.len())..];
            let late: Vec<_> = alive.iter().collect();
            let early: Vec<_> = alive.iter().take(seen).collect();
            let holders = |children: &[String]| -> Vec<String> {
                let names = nodes.iter().map(|node| node.name.clone());
                let holds = |own: &String| {
                    let decided = ask(Rule::Exclusive, &mutex(), own, children, &nodes);
                    matches!(decided, Verdict::Held { .. })
                };
                names.filter(holds).collect()
            };
            let before = holders(&listed(&early, turn));
            prop_assert_eq!(before.len(), 1);
            prop_assert_eq!(before, holders(&listed(&late, turn)));
        }

        #[test]
        fn the_queue_is_in_order_up_to_the_end(
            start in 0..i32::MAX - 40,
            alive in subsequence((0..40).collect::<Vec<i32>>(), 1..40),
            turn: Index,
        ) {
            let nodes: Vec<_> = alive
                .iter()
                .map(|step| node_of(&mutex(), Class::Exclusive, 7, start + step))
                .collect();
            let children = listed(&nodes.iter().collect::<Vec<_>>(), turn);
            let children = children.iter().collect();
            let queued = queue(&mutex(), &children);
            let queued: Vec<_> = queued.iter().map(|contender| contender.name).collect();
            let expected: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
            prop_assert_eq!(queued, expected);
        }

        #[test]
        fn no_list_is_an_error(children: Vec<String>) {
            prop_assert_eq!(decide(&node(1, 1), &children), Verdict::Gone);
            let listed = children.iter().collect();
            prop_assert!(queue(&mutex(), &listed).len() <= children.len());
        }
    }
}
