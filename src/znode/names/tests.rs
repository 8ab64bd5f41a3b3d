//! What is read and written, by example and by property.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

const GUID: Uuid = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
const DASHED: &str = "01234567-89ab-cdef-0123-456789abcdef";
const PLAIN: &str = "0123456789abcdef0123456789abcdef";

fn named(name: &str) -> Grammar {
    Grammar::mutex(Dialect::Curator, Some(LockName::new(name).expect("good")))
}

fn home_grown() -> Grammar {
    Grammar::rw_labelled(RwLabels::new("-R-".into(), "-W-".into()).expect("good"))
}

/// The bytes that Curator, kazoo and go-zookeeper put into ZooKeeper, and those for recipes of
/// one's own.
#[test]
fn golden_names() {
    let (curator, kazoo) = (Dialect::Curator, Dialect::Kazoo);
    let lease = Grammar::lease(curator);
    for (grammar, class, prefix) in [
        (
            Grammar::mutex(curator, None),
            Class::Exclusive,
            format!("_c_{DASHED}-lock-"),
        ),
        (
            named("orders-"),
            Class::Exclusive,
            format!("_c_{DASHED}-orders-"),
        ),
        (
            Grammar::rw(curator),
            Class::Read,
            format!("_c_{DASHED}-__READ__"),
        ),
        (
            Grammar::rw(curator),
            Class::Write,
            format!("_c_{DASHED}-__WRIT__"),
        ),
        (lease.clone(), Class::Lease, format!("_c_{DASHED}-lease-")),
        (
            Grammar::election(curator),
            Class::Leader,
            format!("_c_{DASHED}-latch-"),
        ),
        (
            Grammar::election(kazoo),
            Class::Leader,
            format!("{PLAIN}__lock__"),
        ),
        (
            Grammar::mutex(kazoo, None),
            Class::Exclusive,
            format!("{PLAIN}__lock__"),
        ),
        (Grammar::rw(kazoo), Class::Read, format!("{PLAIN}__rlock__")),
        (Grammar::rw(kazoo), Class::Write, format!("{PLAIN}__lock__")),
        (home_grown(), Class::Read, format!("{PLAIN}-R-")),
        (home_grown(), Class::Write, format!("{PLAIN}-W-")),
    ] {
        assert_eq!(grammar.prefix(GUID, class), prefix);
        let name = format!("{prefix}0000000007");
        let read = ContenderName {
            name: &name,
            class,
            sequence: Sequence(7),
            guid: Some(GUID),
        };
        assert_eq!(grammar.parse(&name), Some(read));
    }
    let lease = Grammar::lease(kazoo);
    assert_eq!(lease.prefix(GUID, Class::Lease), PLAIN);
    assert!(lease.parse(PLAIN).is_some());
    assert_eq!(lease.parse("__lock__"), None);
}

#[test]
fn reads_its_relatives() {
    let curator = Grammar::mutex(Dialect::Curator, None);
    for (name, guid) in [
        (format!("_c_{DASHED}-lock-0000000007"), Some(GUID)),
        (format!("_c_{PLAIN}-lock-0000000007"), Some(GUID)),
        (format!("{PLAIN}-lock-0000000007"), Some(GUID)),
        (format!("{PLAIN}lock-0000000007"), Some(GUID)),
        ("lock-0000000007".to_owned(), None),
    ] {
        let read = curator.parse(&name).expect(&name);
        assert_eq!((read.sequence, read.guid), (Sequence(7), guid));
    }
    let name = format!("{PLAIN}__WRIT__0000000007");
    let read = Grammar::rw(Dialect::Curator).parse(&name).expect(&name);
    assert_eq!((read.class, read.guid), (Class::Write, Some(GUID)));
    let kazoo = Grammar::mutex(Dialect::Kazoo, None);
    let name = format!("{PLAIN}__lock__-2147483648");
    let read = kazoo.parse(&name).expect("past the end");
    assert_eq!(read.sequence, Sequence(i32::MIN));
}

#[test]
fn reads_home_grown_readers_and_writers_behind_any_prefix() {
    let grammar = home_grown();
    for (name, class, number) in [
        ("[host]-R-0000000001", Class::Read, 1),
        ("[host]-W-0000000002", Class::Write, 2),
        ("host-7.example-W-R-0000000003", Class::Read, 3),
        ("-W-0000000004", Class::Write, 4),
        ("ä-R--2147483648", Class::Read, i32::MIN),
        ("ä-R--000000005", Class::Read, -5),
    ] {
        let read = grammar.parse(name).expect(name);
        let (sequence, guid) = (Sequence(number), None);
        assert_eq!(
            (read.class, read.sequence, read.guid),
            (class, sequence, guid)
        );
    }
    for name in [
        "R-0000000001",
        "[host]-R-1",
        "[host]-R-00000000001",
        "[host]-r-0000000001",
        "[host]-R_0000000001",
        "[host]-R-0000000001 ",
        "[host]-X-0000000001",
        "-W-",
    ] {
        assert_eq!(grammar.parse(name), None, "{name}");
    }
}

#[test]
fn ignores_strangers() {
    let curator = Grammar::mutex(Dialect::Curator, None);
    for name in [
        "hello",
        "",
        "lock-",
        "lock-7",
        "b-lock-0000000007",
        "-lock-0000000007",
        "_c_-lock-0000000007",
        "_c_01234567-89ab-cdef-0123-456789abcdef-b-lock-0000000007",
        "_c_01234567-89ab-cdef-0123-456789abcdef-lock-000000007",
        "_c_01234567-89ab-cdef-0123-456789abcdef-__READ__0000000007",
        "_c_01234567-89ab-cdef-0123-456789abcdef-lease-0000000007",
        "_c_01234567-89ab-cdef-0123-456789abcdef-block-0000000007",
        "_c_0123456789ab-cdef-0123-456789abcdef01-lock-0000000007",
        "_c_0123456789abcdef0123456789abcdeflock-0000000007",
        "01234567-89ab-cdef-0123-456789abcdef-lock-0000000007",
        "0123456789abcdef0123456789abcde-lock-0000000007",
        "0123456789abcdef0123456789abcdef--lock-0000000007",
        "0123456789abcdef0123456789abcdef-b-lock-0000000007",
        "0123456789abcdef0123456789abcdefblock-0000000007",
        "x0123456789abcdef0123456789abcdef-lock-0000000007",
        "_c_01234567-89ab-cdef-0123-456789abcdefäx-lock-0000000007",
        "_c_{01234567-89ab-cdef-0123-456789abcdef}-lock-0000000007",
        "0123456789abcdef0123456789abcdef__lock__0000000007",
        "x-72057594037927936-0000000007",
    ] {
        assert_eq!(curator.parse(name), None, "{name}");
    }
    let kazoo = Grammar::rw(Dialect::Kazoo);
    for name in [
        "__lock__0000000007",
        "0123456789abcdef0123456789abcde__lock__0000000007",
        "01234567-89ab-cdef-0123-456789abcdef__lock__0000000007",
        "0123456789abcdef0123456789abcdef__xlock__0000000007",
        // A lease of kazoo's semaphore.
        "0123456789abcdef0123456789abcdef",
    ] {
        assert_eq!(kazoo.parse(name), None, "{name}");
    }
}

/// Had `a` been a name beside `a-`, number -2147483647 of the one would have been number
/// 2147483647 of the other, just where the numbers run out.
#[test]
fn a_sign_is_never_taken_for_a_separator() {
    let name = "a_-2147483647";
    assert_eq!(named("a_").parse(name).expect(name).sequence.0, -i32::MAX);
    assert_eq!(
        named("a-").parse("a-2147483647").map(|c| c.sequence.0),
        Some(i32::MAX)
    );
}

fn any_name() -> impl Strategy<Value = LockName> {
    // Short ones from few letters, so that two of them are often related.
    let name = prop_oneof!["[ab_.-]{0,3}[ab1][-_]", "[a-zA-Z_.-]{0,10}[a-zA-Z.][-_]"];
    name.prop_filter_map("a mark of Curator's", |name| LockName::new(name).ok())
}

fn any_dialect() -> impl Strategy<Value = Dialect> {
    prop_oneof![Just(Dialect::Curator), Just(Dialect::Kazoo)]
}

/// Also with numbers near the ends and near where they get longer.
fn any_number() -> impl Strategy<Value = i32> {
    let near = |at: i32| (-3..=3).prop_map(move |step| at.wrapping_add(step));
    prop_oneof![
        any::<i32>(),
        near(0),
        near(i32::MAX),
        near(1_000_000_000),
        near(-1_000_000_000),
    ]
}

proptest! {
    #[test]
    fn round_trip(
        dialect in any_dialect(),
        name in any_name(),
        kind in 0..5_u8,
        guid: u128,
        number in any_number(),
    ) {
        let (grammar, class) = match (kind, dialect) {
            (0, _) => (Grammar::rw(dialect), Class::Read),
            (1, _) => (Grammar::rw(dialect), Class::Write),
            (4, _) => (Grammar::election(dialect), Class::Leader),
            // kazoo's have no number.
            (2, Dialect::Curator) => (Grammar::lease(dialect), Class::Lease),
            _ => (Grammar::mutex(dialect, Some(name)), Class::Exclusive),
        };
        let guid = Uuid::from_u128(guid);
        let name = format!("{}{}", grammar.prefix(guid, class), Sequence(number));
        let sequence = Sequence(number);
        let read = ContenderName { name: &name, class, sequence, guid: Some(guid) };
        prop_assert_eq!(grammar.parse(&name), Some(read));
    }

    #[test]
    fn two_names_never_share_a_node(
        dialect in any_dialect(),
        a in any_name(),
        b in any_name(),
        guid: u128,
        number in any_number(),
        form in 0..5_u8,
    ) {
        prop_assume!(a != b);
        let guid = Uuid::from_u128(guid);
        let prefix = match (form, dialect) {
            (0, Dialect::Curator) => a.to_string(),
            (1, Dialect::Curator) => format!("{}{a}", guid.simple()),
            (2, Dialect::Curator) => format!("{}-{a}", guid.simple()),
            (3, Dialect::Curator) => format!("{PROTECTION}{}-{a}", guid.simple()),
            _ => Grammar::mutex(dialect, Some(a.clone())).prefix(guid, Class::Exclusive),
        };
        let child = format!("{prefix}{}", Sequence(number));
        // Names that would be `a` and a part of what stands before it.
        let longer = ["-".to_owned(), guid.simple().to_string(), format!("{PROTECTION}{guid}-")];
        let longer = longer.map(|before| LockName::new(format!("{before}{a}")).ok());
        prop_assert!(Grammar::mutex(dialect, Some(a)).parse(&child).is_some());
        for other in longer.into_iter().flatten().chain([b]) {
            prop_assert_eq!(Grammar::mutex(dialect, Some(other)).parse(&child), None);
        }
    }

    /// Behind any prefix, and whatever the labels.
    #[test]
    fn home_grown_readers_and_writers_are_told_apart(
        read in "[RW_.-]{0,3}[RWa][-_]",
        write in "[RW_.-]{0,3}[RWa][-_]",
        before in ".{0,12}",
        reads: bool,
        number in any_number(),
    ) {
        let labels = RwLabels::new(read.clone(), write.clone());
        prop_assume!(labels.is_ok());
        let grammar = Grammar::rw_labelled(labels.expect("assumed"));
        let (class, label) = if reads { (Class::Read, read) } else { (Class::Write, write) };
        let sequence = Sequence(number);
        let name = format!("{before}{label}{sequence}");
        let found = grammar.parse(&name).map(|read| (read.class, read.sequence));
        prop_assert_eq!(found, Some((class, sequence)));
    }

    /// Whatever is read can be written again, so nothing is read that is not a contender.
    #[test]
    fn strangers_are_never_contenders(
        dialect in any_dialect(),
        name in prop_oneof![
            any::<String>(),
            "(_c_)?[0-9a-f-]{30,40}(__)?[lockrREADWIT-]{2,6}(__)?-?[0-9]{8,11}",
            "(_c_)?[0-9a-f]{31,33}[-]{0,2}(lock-|latch-|__(READ|WRIT|lock|rlock)__)[0-9]{10}",
        ],
    ) {
        let (mutex, rw) = (Grammar::mutex(dialect, None), Grammar::rw(dialect));
        for grammar in [mutex, rw, Grammar::election(dialect)] {
            let Some(read) = grammar.parse(&name) else { continue };
            let known: Vec<String> = match read.guid {
                Some(guid) => {
                    let written = grammar.prefix(guid, read.class);
                    let plain = written.replace(&guid.to_string(), &guid.simple().to_string());
                    let bare = plain.trim_start_matches(PROTECTION).to_owned();
                    let joined = bare.replacen('-', "", 1);
                    match dialect {
                        Dialect::Curator => vec![written, plain, bare, joined],
                        Dialect::Kazoo => vec![written],
                    }
                }
                None => grammar.labels.iter().map(|(_, label)| label.to_string()).collect(),
            };
            let number = read.sequence;
            let written = known.iter().any(|prefix| name == format!("{prefix}{number}"));
            prop_assert!(written, "{name}");
        }
    }

    /// One character more or less makes a stranger of a contender; another one makes a
    /// stranger or another contender.
    #[test]
    fn matching_is_exact(dialect in any_dialect(), guid: u128, at: Index, c: char) {
        let grammar = Grammar::mutex(dialect, None);
        let prefix = grammar.prefix(Uuid::from_u128(guid), Class::Exclusive);
        let name = format!("{prefix}0000000007");
        let at = at.index(name.len());
        let (before, after) = (&name[..at], &name[at + 1..]);
        let longer = format!("{before}{c}{}", &name[at..]);
        let shorter = format!("{before}{after}");
        prop_assert_eq!(grammar.parse(&longer), None);
        prop_assert_eq!(grammar.parse(&shorter), None);
        let other = format!("{before}{c}{after}");
        // The GUID's digits may have any case.
        if !other.eq_ignore_ascii_case(&name) {
            let read = |name| grammar.parse(name).map(|read| (read.guid, read.sequence));
            prop_assert_ne!(read(&other), read(&name));
        }
    }
}
