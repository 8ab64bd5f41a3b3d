//! Members of both: kazoo's `DoubleBarrier`.

use std::thread;

use testbed::{Kazoo, Matcher, Proxy, opcode};
use zklock::{AcquireOptions, Client, Dialect, DoubleBarrier, Membership};

use super::{kazoo, tell, wait_until_kazoo_watches};
use crate::fixtures::{SOON, T, children, client, client_at, server, wait_for_children};

fn barrier(client: &Client, path: &str, members: usize, dialect: Dialect) -> DoubleBarrier {
    DoubleBarrier::builder(client, path, members)
        .dialect(dialect)
        .build()
        .expect("a good path")
}

fn enters(barrier: &DoubleBarrier) -> Option<Membership> {
    barrier.enter_for(SOON).expect("answers")
}

fn leaves(member: Membership) -> bool {
    member.leave_for(SOON).expect("answers")
}

fn kazoo_with(path: &str, names: &[&str], members: usize) -> Kazoo {
    let mut kazoo = kazoo();
    for name in names {
        tell(
            &mut kazoo,
            &format!("doublebarrier {name} {path} {members}"),
        );
    }
    kazoo
}

/// With one of each, where kazoo comes first or last and leaves first or last; the same barrier
/// each time.
fn two_meet_again_and_again(path: &str, dialect: Dialect) {
    let (mut kazoo, client) = (kazoo_with(path, &["k"], 2), client());
    let barrier = barrier(&client, path, 2, dialect);
    for (kazoo_comes_first, kazoo_leaves_first) in
        [(true, true), (false, false), (true, false), (false, true)]
    {
        let member = thread::scope(|scope| {
            if kazoo_comes_first {
                tell(&mut kazoo, "begin k");
                wait_until_kazoo_watches(&format!("{path}/ready"), &client);
                assert_eq!(kazoo.say("begun? k"), "no");
            }
            let entering = scope.spawn(|| enters(&barrier));
            if !kazoo_comes_first {
                wait_for_children(server(), path, 1);
                assert!(!entering.is_finished());
                tell(&mut kazoo, "begin k");
            }
            tell(&mut kazoo, "finish k");
            entering.join().expect("no panic").expect("both are there")
        });
        assert!(member.is_held());
        assert_eq!(children(server(), path).len(), 3);
        thread::scope(|scope| {
            if kazoo_leaves_first {
                tell(&mut kazoo, "begin-leave k");
                wait_until_kazoo_watches(member.path(), &client);
                assert_eq!(kazoo.say("begun? k"), "no");
            }
            let leaving = scope.spawn(|| leaves(member));
            if !kazoo_leaves_first {
                assert!(!leaving.is_finished());
                tell(&mut kazoo, "begin-leave k");
            }
            tell(&mut kazoo, "finish k");
            assert!(leaving.join().expect("no panic"), "both have left");
        });
        // `ready` too.
        wait_for_children(server(), path, 0);
    }
}

#[test]
fn two_enter_and_leave_together_again_and_again() {
    two_meet_again_and_again("/kazoo/barrier/two", Dialect::Kazoo);
}

/// kazoo counts children, whatever their names are; ours know both kinds of GUID.
#[test]
fn two_enter_and_leave_together_also_with_our_default_names() {
    two_meet_again_and_again("/kazoo/barrier/default", Dialect::Curator);
}

fn one_of_ours_meets_two_of_kazoos(path: &str, dialect: Dialect) {
    let (mut kazoo, client) = (kazoo_with(path, &["k", "l"], 3), client());
    let barrier = barrier(&client, path, 3, dialect);
    for _ in 0..2 {
        tell(&mut kazoo, "begin k");
        wait_for_children(server(), path, 1);
        let member = thread::scope(|scope| {
            let entering = scope.spawn(|| enters(&barrier));
            wait_for_children(server(), path, 2);
            assert_eq!(kazoo.say("begun? k"), "no");
            assert!(!entering.is_finished());
            tell(&mut kazoo, "begin l");
            tell(&mut kazoo, "finish k");
            tell(&mut kazoo, "finish l");
            entering.join().expect("no panic").expect("all are there")
        });
        tell(&mut kazoo, "begin-leave k");
        assert_eq!(kazoo.say("begun? k"), "no");
        thread::scope(|scope| {
            let leaving = scope.spawn(|| leaves(member));
            assert!(!leaving.is_finished());
            assert_eq!(kazoo.say("begun? k"), "no");
            tell(&mut kazoo, "begin-leave l");
            tell(&mut kazoo, "finish k");
            tell(&mut kazoo, "finish l");
            assert!(leaving.join().expect("no panic"), "all have left");
        });
        wait_for_children(server(), path, 0);
    }
}

#[test]
fn one_of_ours_and_two_of_kazoos_enter_and_leave_together_twice() {
    one_of_ours_meets_two_of_kazoos("/kazoo/barrier/one-two", Dialect::Kazoo);
}

#[test]
fn one_of_ours_and_two_of_kazoos_meet_also_with_our_default_names() {
    one_of_ours_meets_two_of_kazoos("/kazoo/barrier/one-two-default", Dialect::Curator);
}

fn two_of_ours_meet_one_of_kazoos(path: &str, dialect: Dialect) {
    let (mut kazoo, clients) = (kazoo_with(path, &["k"], 3), [client(), client()]);
    let barriers = clients
        .each_ref()
        .map(|client| barrier(client, path, 3, dialect));
    for _ in 0..2 {
        let members = thread::scope(|scope| {
            let first = scope.spawn(|| enters(&barriers[0]));
            wait_for_children(server(), path, 1);
            tell(&mut kazoo, "begin k");
            wait_for_children(server(), path, 2);
            assert!(!first.is_finished());
            assert_eq!(kazoo.say("begun? k"), "no");
            let last = scope.spawn(|| enters(&barriers[1]));
            tell(&mut kazoo, "finish k");
            [first, last].map(|entering| entering.join().expect("no panic"))
        });
        let members = members.map(|member| member.expect("all are there"));
        thread::scope(|scope| {
            let leaving = members.map(|member| scope.spawn(|| leaves(member)));
            assert!(leaving.iter().all(|leaving| !leaving.is_finished()));
            tell(&mut kazoo, "begin-leave k");
            tell(&mut kazoo, "finish k");
            for leaving in leaving {
                assert!(leaving.join().expect("no panic"), "all have left");
            }
        });
        wait_for_children(server(), path, 0);
    }
}

#[test]
fn two_of_ours_and_one_of_kazoos_enter_and_leave_together_twice() {
    two_of_ours_meet_one_of_kazoos("/kazoo/barrier/two-one", Dialect::Kazoo);
}

#[test]
fn two_of_ours_and_one_of_kazoos_meet_also_with_our_default_names() {
    two_of_ours_meet_one_of_kazoos("/kazoo/barrier/two-one-default", Dialect::Curator);
}

/// Two members: one of kazoo's, and one of ours behind a proxy.
struct Pair {
    path: String,
    kazoo: Kazoo,
    proxy: Proxy,
    client: Client,
    barrier: DoubleBarrier,
}

impl Pair {
    fn at(path: &str) -> Self {
        let proxy = Proxy::start(server().addr());
        let client = client_at(&proxy.connect_string());
        let mut pair = Self {
            path: path.to_owned(),
            kazoo: kazoo_with(path, &["k"], 2),
            barrier: barrier(&client, path, 2, Dialect::Kazoo),
            proxy,
            client,
        };
        // So that the folder is there from now on.
        tell(&mut pair.kazoo, "begin k");
        let ours = enters(&pair.barrier).expect("both are there");
        tell(&mut pair.kazoo, "finish k");
        pair.leave_both(ours);
        pair
    }

    fn next(&self, opcode: i32) -> Matcher {
        Matcher::next(opcode).with_path_containing(&self.path)
    }

    fn leave_both(&mut self, ours: Membership) {
        tell(&mut self.kazoo, "begin-leave k");
        assert!(leaves(ours), "kazoo leaves");
        tell(&mut self.kazoo, "finish k");
        wait_for_children(server(), &self.path, 0);
    }

    /// Who is first by name stays the longest. That is kazoo in half of the rounds. Returns what
    /// came of such a round.
    fn when_kazoo_is_first<T>(
        &mut self,
        mut enter: impl FnMut(&mut Self) -> Result<T, Membership>,
    ) -> T {
        for _ in 0..40 {
            // Another object has another name.
            let path = &self.path;
            tell(&mut self.kazoo, &format!("doublebarrier k {path} 2"));
            match enter(self) {
                Ok(found) => return found,
                Err(ours) => self.leave_both(ours),
            }
        }
        panic!("a coin that falls on one side only");
    }
}

/// The first by name, `ready` aside.
fn first_in(path: &str) -> String {
    children(server(), path)
        .into_iter()
        .filter(|name| name != "ready")
        .min()
        .expect("somebody")
}

/// kazoo's members remove `ready` as soon as one of them leaves. A member of ours that was counted,
/// and is slow to look, finds no `ready` then, and makes another. kazoo's, if it is first by name,
/// stays until the last of the children has gone, and that is this `ready`; so ours must not wait
/// for kazoo's before it removes it.
#[test]
fn a_slow_member_of_ours_gets_in_and_out_although_kazoo_is_leaving_already() {
    let mut pair = Pair::at("/kazoo/barrier/slow");
    let member = pair.when_kazoo_is_first(|pair| {
        let hold = pair.proxy.hold_reply(pair.next(opcode::CREATE));
        let barrier = pair.barrier.clone();
        let entering = thread::spawn(move || enters(&barrier));
        hold.wait_until_held(SOON);
        wait_for_children(server(), &pair.path, 1);
        let [ours] = <[_; 1]>::try_from(children(server(), &pair.path)).expect("one");
        tell(&mut pair.kazoo, "enter k");
        let is_first = first_in(&pair.path) != ours;
        if is_first {
            tell(&mut pair.kazoo, "begin-leave k");
            let ours = format!("{}/{ours}", pair.path);
            wait_until_kazoo_watches(&ours, &pair.client);
        }
        hold.release();
        let member = entering.join().expect("no panic").expect("both are there");
        if is_first { Ok(member) } else { Err(member) }
    });
    let both_left = member.leave_for(T).expect("answers");
    assert!(both_left, "left: {:?}", children(server(), &pair.path));
    tell(&mut pair.kazoo, "finish k");
    wait_for_children(server(), &pair.path, 0);
}

/// A barrier object of kazoo's has one name for its node, each time that it enters. Who waits for
/// it to leave must not take its next node for that of before: kazoo would wait inside for ours,
/// and ours outside for kazoo.
#[test]
fn a_member_of_kazoos_that_enters_again_has_left_before() {
    let mut pair = Pair::at("/kazoo/barrier/again");
    let member = pair.when_kazoo_is_first(|pair| {
        tell(&mut pair.kazoo, "begin k");
        wait_for_children(server(), &pair.path, 1);
        let member = enters(&pair.barrier).expect("both are there");
        tell(&mut pair.kazoo, "finish k");
        let is_first = !member.path().ends_with(&first_in(&pair.path));
        if is_first { Ok(member) } else { Err(member) }
    });
    let hold = pair.proxy.hold_request(pair.next(opcode::GET_CHILDREN));
    let leaving = thread::spawn(move || member.leave_for(T).expect("answers"));
    // Our node has gone; we have not looked for kazoo's yet.
    hold.wait_until_held(SOON);
    tell(&mut pair.kazoo, "leave k");
    tell(&mut pair.kazoo, "begin k");
    wait_for_children(server(), &pair.path, 1);
    hold.release();
    let both_left = leaving.join().expect("no panic");
    assert!(both_left, "its next node was taken for that of before");
    let member = enters(&pair.barrier).expect("both are there again");
    tell(&mut pair.kazoo, "finish k");
    pair.leave_both(member);
}

/// One of ours waits, and kazoo's comes, goes in and begins to leave at once: `ready` was there only
/// between two looks of ours. Its watch has told that it was made after our node; a look alone finds
/// neither `ready` nor kazoo's member, and once both waited for ever.
#[test]
fn a_member_of_ours_that_was_counted_gets_in_although_ready_is_gone() {
    let mut pair = Pair::at("/kazoo/barrier/counted");
    for _ in 0..40 {
        let path = pair.path.clone();
        tell(&mut pair.kazoo, &format!("doublebarrier k {path} 2"));
        let barrier = pair.barrier.clone();
        let (to, positions) = crossbeam_channel::unbounded();
        let options = AcquireOptions::new().timeout(T).positions(&to);
        let entering = thread::spawn(move || barrier.enter_with(options));
        positions
            .recv_timeout(SOON)
            .expect("it has looked, and waits");
        let [ours] = <[_; 1]>::try_from(children(server(), &path)).expect("one");
        let hold = pair.proxy.hold_request(pair.next(opcode::EXISTS));
        tell(&mut pair.kazoo, "enter k");
        hold.wait_until_held(SOON);
        let is_first = first_in(&path) == ours;
        tell(&mut pair.kazoo, "begin-leave k");
        // kazoo's is gone where ours is the first by name, and waits for it; else ours sees it.
        let left = if is_first { 1 } else { 2 };
        wait_for_children(server(), &path, left);
        hold.release();
        let member = entering.join().expect("no panic").expect("it was counted");
        assert!(leaves(member), "both have left");
        tell(&mut pair.kazoo, "finish k");
        wait_for_children(server(), &path, 0);
        if is_first {
            return;
        }
    }
    panic!("a coin that falls on one side only");
}
