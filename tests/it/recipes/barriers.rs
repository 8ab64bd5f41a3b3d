//! The barrier and the double barrier.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use testbed::raw::Flags;
use testbed::{Action, Matcher, Proxy, Server, opcode, wait_until};
use zklock::{AcquireOptions, Barrier, CancelToken, Dialect, DoubleBarrier, LockState, Membership};

use crate::fixtures::{
    SOON, T, builder, children, client, client_at, raw, server, wait_for_children,
};

const SHORT: Duration = Duration::from_millis(100);

/// One of two members, with a client of its own.
fn of_two(path: &str) -> DoubleBarrier {
    DoubleBarrier::new(&client(), path, 2).expect("good")
}

/// Each waits for the other.
fn both_leave(one: Membership, other: Membership) {
    std::thread::scope(|scope| {
        let leaves = scope.spawn(|| one.leave());
        other.leave().expect("both leave");
        leaves.join().expect("no panic").expect("both leave");
    });
}

#[test]
fn a_barrier_holds_back_until_it_is_removed() {
    let path = "/barriers/gate";
    let clients = [client(), client(), client()];
    let gates: Vec<_> = clients
        .iter()
        .map(|client| Barrier::new(client, path).expect("a good path"))
        .collect();
    gates[0].wait().expect("open");
    gates[0].set().expect("answers");
    gates[1].set().expect("closed already");
    assert!(gates[2].is_set().expect("answers"));
    assert!(!gates[2].wait_for(SHORT).expect("answers"));
    assert!(!gates[2].wait_for(Duration::ZERO).expect("answers"));
    std::thread::scope(|scope| {
        let waiters: Vec<_> = gates[1..]
            .iter()
            .map(|gate| scope.spawn(|| gate.wait().expect("opened")))
            .collect();
        let looks = server();
        wait_until("both wait", SOON, || looks.stats().watch_count >= 2);
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        gates[0].remove().expect("answers");
        for waiter in waiters {
            waiter.join().expect("no panic");
        }
    });
    gates[1].remove().expect("open already");
    assert!(gates[2].wait_for(Duration::ZERO).expect("answers"));
}

/// Whatever happens to the connection and the session, who waits goes on waiting, and hears.
#[test]
fn a_barriers_waiter_survives_a_lost_session() {
    let path = "/barriers/session";
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let other = crate::fixtures::client();
    let (gate, opener) = (
        Barrier::new(&client, path).expect("good"),
        Barrier::new(&other, path).expect("good"),
    );
    opener.set().expect("answers");
    let session = client.session_id();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| gate.wait());
        proxy.refuse();
        proxy.reset_all();
        wait_until("the session is lost", SOON, || {
            client.session_id() != session
        });
        opener.remove().expect("answers");
        proxy.accept();
        waiter.join().expect("no panic").expect("opened meanwhile");
    });
    opener.set().expect("answers");
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let options = AcquireOptions::new().cancel(&token);
        let waiter = scope.spawn(|| gate.wait_with(options));
        token.cancel();
        let error = waiter.join().expect("no panic").expect_err("cancelled");
        assert!(error.is_cancelled(), "{error}");
    });
}

/// A barrier that many waited for leaves no watch (an `exists` watch on a missing node stays).
#[test]
fn barriers_leave_no_watches() {
    let server = Server::start();
    let client = crate::fixtures::builder(&server.connect_string())
        .connect()
        .expect("works");
    let gate = Barrier::new(&client, "/gate").expect("good");
    let double = DoubleBarrier::new(&client, "/double", 2).expect("good");
    for _ in 0..5 {
        gate.set().expect("answers");
        assert!(!gate.wait_for(Duration::from_millis(20)).expect("answers"));
        gate.remove().expect("answers");
        gate.wait().expect("open");
        let alone = double.enter_for(Duration::from_millis(20));
        assert!(alone.expect("answers").is_none());
        // The removal goes on after the call: until then the next one would be the second.
        wait_for_children(&server, "/double", 0);
    }
    wait_until("no watch is left", SOON, || server.stats().watch_count == 0);
    let mut raw = raw(&server);
    assert!(raw.children("/double").expect("there").is_empty());
}

/// Several rounds, each member a thread, from several processes' sessions: nobody is inside before
/// all are, nobody comes out before all do, and rounds do not mix.
#[test]
fn members_go_in_and_out_together() {
    const MEMBERS: usize = 5;
    const ROUNDS: usize = 8;
    let path = "/barriers/double";
    let clients = [client(), client()];
    let barriers: Vec<_> = clients
        .iter()
        .map(|client| DoubleBarrier::new(client, path, MEMBERS).expect("good"))
        .collect();
    let (entering, leaving) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for member in 0..MEMBERS {
            let barrier = &barriers[member % barriers.len()];
            let (entering, leaving) = (&entering, &leaving);
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    entering.fetch_add(1, Ordering::SeqCst);
                    let inside = barrier.enter().expect("all come");
                    assert!(inside.is_held());
                    let entered = entering.load(Ordering::SeqCst);
                    assert!(entered >= round * MEMBERS, "in before all were there");
                    let left = leaving.load(Ordering::SeqCst);
                    assert!(left >= (round - 1) * MEMBERS, "a round before is not over");
                    leaving.fetch_add(1, Ordering::SeqCst);
                    inside.leave().expect("all leave");
                    let left = leaving.load(Ordering::SeqCst);
                    assert!(left >= round * MEMBERS, "out before all had left");
                }
            });
        }
    });
    wait_for_children(server(), path, 0);
}

/// Curator's and kazoo's members leave their node when they time out; the next one is then counted
/// together with a ghost.
#[test]
fn an_enter_that_times_out_is_not_counted() {
    let path = "/barriers/timeout";
    let client = client();
    let barrier = DoubleBarrier::new(&client, path, 2).expect("good");
    assert!(barrier.enter_for(SHORT).expect("answers").is_none());
    wait_for_children(server(), path, 0);
    assert!(barrier.enter_for(SHORT).expect("answers").is_none());
    // The removal goes on after the call: until then the next one would be the second.
    wait_for_children(server(), path, 0);
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let options = AcquireOptions::new().cancel(&token);
        let enters = scope.spawn(|| barrier.enter_with(options).map(drop));
        wait_for_children(server(), path, 1);
        token.cancel();
        let error = enters.join().expect("no panic").expect_err("cancelled");
        assert!(error.is_cancelled(), "{error}");
    });
    wait_for_children(server(), path, 0);
}

/// Whoever comes last has no need to wait, and so no need of time.
#[test]
fn who_has_no_time_enters_if_all_the_others_are_there() {
    let path = "/barriers/no-time";
    let clients = [client(), client()];
    let meet = |client| DoubleBarrier::new(client, path, 2).expect("good");
    let (one, two) = (meet(&clients[0]), meet(&clients[1]));
    let alone = two.enter_for(Duration::ZERO).expect("answers");
    assert!(alone.is_none());
    wait_for_children(server(), path, 0);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| one.enter().expect("both are there"));
        wait_for_children(server(), path, 1);
        let inside = two.enter_for(Duration::ZERO).expect("answers");
        assert!(inside.expect("the other is there").is_held());
        assert!(waits.join().expect("no panic").is_held());
    });
    // Both have dropped out: what let them in must not let Curator's next ones pass one by one.
    wait_for_children(server(), path, 0);
}

/// A program that ends right after its members have gone left `ready` behind, which is persistent:
/// its removal is a job of the client that was closed.
#[test]
fn a_client_that_is_closed_after_its_members_have_gone_leaves_nothing() {
    let path = "/barriers/closed";
    let proxy = Proxy::start(server().addr());
    for turn in 0..4 {
        let client = client_at(&proxy.connect_string());
        let meet = || DoubleBarrier::new(&client, path, 2).expect("good");
        let (one, two) = (meet(), meet());
        let members = std::thread::scope(|scope| {
            let waits = scope.spawn(|| one.enter().expect("both are there"));
            let inside = two.enter().expect("both are there");
            [waits.join().expect("no panic"), inside]
        });
        // What they ask when they go is not answered at once.
        proxy.delay(Duration::from_millis(20));
        drop(members);
        if turn % 2 == 0 {
            client.close();
        }
        drop((one, two, client));
        proxy.delay(Duration::ZERO);
        wait_for_children(server(), path, 0);
    }
}

/// A `ready` that was left by members who died let the next round through one by one.
#[test]
fn a_stale_ready_lets_nobody_through() {
    let path = "/barriers/stale";
    let barriers: [_; 2] = std::array::from_fn(|_| of_two(path));
    let mut raw = raw(server());
    for folder in ["/barriers", path] {
        let _ = raw.create(folder, b"", Flags::Persistent);
    }
    let ready = format!("{path}/ready");
    raw.create(&ready, b"", Flags::Persistent).expect("there");
    assert!(barriers[0].enter_for(SHORT).expect("answers").is_none());
    raw.create(&ready, b"", Flags::Persistent)
        .expect("the first of the next round has removed it");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| barriers[0].enter().expect("two"));
        wait_for_children(server(), path, 1);
        assert!(!first.is_finished());
        let second = barriers[1].enter().expect("two");
        let first = first.join().expect("no panic");
        both_leave(first, second);
    });
    wait_for_children(server(), path, 0);
}

/// While a round is not over, its `ready` stands: it must not let in who comes for the next.
#[test]
fn the_next_round_waits_for_the_last_to_leave() {
    let path = "/barriers/rounds";
    let barriers: [_; 4] = std::array::from_fn(|_| of_two(path));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| barriers[0].enter().expect("two"));
        let second = barriers[1].enter().expect("two");
        let first = first.join().expect("no panic");
        let third = scope.spawn(|| barriers[2].enter().expect("two"));
        wait_for_children(server(), path, 4);
        assert!(!third.is_finished());
        both_leave(first, second);
        assert!(!third.is_finished());
        let fourth = barriers[3].enter().expect("two");
        let third = third.join().expect("no panic");
        assert!(
            !third.leave_for(SHORT).expect("answers"),
            "the fourth is inside"
        );
        drop(fourth);
    });
    wait_until("all have left", SOON, || {
        let left = children(server(), path);
        left.is_empty() || left == ["ready"]
    });
    // What the two of them could not take along, as neither saw the other leave, does no harm.
    assert!(barriers[0].enter_for(SHORT).expect("answers").is_none());
}

/// The slow one looks when the fast ones have begun to leave: a count alone would keep it out.
#[test]
fn a_slow_member_gets_in_although_others_leave() {
    let path = "/barriers/slow";
    let proxy = Proxy::start(server().addr());
    let slow = client_at(&proxy.connect_string());
    let fast = crate::fixtures::client();
    let slow = DoubleBarrier::new(&slow, path, 2).expect("good");
    let fast = DoubleBarrier::new(&fast, path, 2).expect("good");
    // Its list is held back: it has its node, and does not know yet who is there.
    let hold = proxy.hold_request(Matcher::next(opcode::GET_CHILDREN).with_path_containing(path));
    std::thread::scope(|scope| {
        let enters = scope.spawn(|| slow.enter().expect("counted"));
        hold.wait_until_held(SOON);
        let inside = fast.enter().expect("two are there");
        let leaves = scope.spawn(|| inside.leave());
        hold.release();
        let inside = enters.join().expect("no panic");
        inside.leave().expect("both leave");
        leaves.join().expect("no panic").expect("both leave");
    });
    wait_for_children(server(), path, 0);
}

/// A member that has dropped out and comes again before the others are done belongs to the next
/// round; who leaves must not wait for it.
#[test]
fn who_leaves_does_not_wait_for_the_next_round() {
    let path = "/barriers/again";
    let barriers: [_; 2] = std::array::from_fn(|_| of_two(path));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| barriers[0].enter().expect("two"));
        let second = barriers[1].enter().expect("two");
        let first = first.join().expect("no panic");
        drop(second);
        wait_for_children(server(), path, 2);
        let token = CancelToken::new();
        let options = AcquireOptions::new().cancel(&token);
        let again = scope.spawn(|| barriers[1].enter_with(options).map(drop));
        wait_for_children(server(), path, 3);
        first.leave().expect("nobody else entered with it");
        token.cancel();
        assert!(again.join().expect("no panic").is_err());
    });
    wait_for_children(server(), path, 0);
}

/// As above, and the one who leaves was slow: when it looked, the early one was there already.
#[test]
fn who_was_slow_does_not_wait_for_the_next_round() {
    let path = "/barriers/slow-again";
    let proxy = Proxy::start(server().addr());
    let slow = client_at(&proxy.connect_string());
    let fast = crate::fixtures::client();
    let slow = DoubleBarrier::new(&slow, path, 2).expect("good");
    let fast = DoubleBarrier::new(&fast, path, 2).expect("good");
    let hold = proxy.hold_request(Matcher::next(opcode::GET_CHILDREN).with_path_containing(path));
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let enters = scope.spawn(|| slow.enter().expect("counted"));
        hold.wait_until_held(SOON);
        drop(fast.enter().expect("two are there"));
        wait_for_children(server(), path, 2);
        let options = AcquireOptions::new().cancel(&token);
        let early = scope.spawn(|| fast.enter_with(options).map(drop));
        // The slow one, `ready`, and the early one.
        wait_for_children(server(), path, 3);
        hold.release();
        let inside = enters.join().expect("no panic");
        let alone = inside.leave_for(SOON / 6).expect("answers");
        token.cancel();
        assert!(early.join().expect("no panic").is_err());
        assert!(alone, "it waited for one who had not entered with it");
    });
    wait_for_children(server(), path, 0);
}

/// A member that waits is woken when another comes, and no more often. (Its own watch's removal
/// once woke it, again and again.)
#[test]
fn a_waiting_member_does_not_spin() {
    let path = "/barriers/spin";
    let proxy = Proxy::start(server().addr());
    let waiting = client_at(&proxy.connect_string());
    let waiting = DoubleBarrier::new(&waiting, path, 3).expect("good");
    let other = crate::fixtures::client();
    let other = DoubleBarrier::new(&other, path, 3).expect("good");
    std::thread::scope(|scope| {
        let token = CancelToken::new();
        let both = [&waiting, &other].map(|barrier| {
            let options = AcquireOptions::new().cancel(&token);
            scope.spawn(move || barrier.enter_with(options).map(drop))
        });
        wait_for_children(server(), path, 2);
        // A third that comes and goes many times.
        for _ in 0..10 {
            drop(raw(server()).create(&format!("{path}/x"), b"", Flags::Persistent));
            raw(server()).delete(&format!("{path}/x")).expect("there");
        }
        let seen = proxy.counters();
        let requests: u64 = [opcode::GET_CHILDREN, opcode::EXISTS, opcode::REMOVE_WATCHES]
            .iter()
            .map(|op| seen.requested(*op))
            .sum();
        assert!(requests < 100, "{seen:?}");
        token.cancel();
        for one in both {
            assert!(one.join().expect("no panic").is_err());
        }
    });
}

/// The event of an earlier opening may still be on its way when the gate is closed again.
#[test]
fn an_earlier_opening_is_not_taken_for_a_later_one() {
    let path = "/barriers/pulse";
    let client = client();
    let gate = Barrier::new(&client, path).expect("good");
    for _ in 0..30 {
        gate.set().expect("answers");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| gate.wait().expect("opened, if only for a moment"));
            gate.remove().expect("answers");
            gate.set().expect("answers");
            assert!(!gate.wait_for(Duration::from_millis(20)).expect("answers"));
            gate.remove().expect("answers");
            waits.join().expect("no panic");
        });
    }
}

#[test]
fn a_lost_create_reply_makes_no_second_member() {
    let path = "/barriers/lost";
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let barrier = DoubleBarrier::new(&client, path, 2).expect("good");
    assert!(barrier.enter_for(SHORT).expect("answers").is_none());
    let create = Matcher::next(opcode::CREATE).with_path_containing(path);
    let trap = proxy.on_reply(create, Action::Reset);
    std::thread::scope(|scope| {
        let enters = scope.spawn(|| barrier.enter_for(SOON));
        trap.wait_until_sprung(SOON);
        wait_for_children(server(), path, 1);
        assert!(!enters.is_finished(), "one member is not two");
        let other = crate::fixtures::client();
        let other = DoubleBarrier::new(&other, path, 2).expect("good");
        drop(other.enter().expect("two"));
        let inside = enters.join().expect("no panic").expect("answers");
        inside.expect("two").leave().expect("the other has left");
    });
    wait_for_children(server(), path, 0);
}

#[test]
fn a_member_that_loses_its_session_has_left() {
    let path = "/barriers/dies";
    let proxy = Proxy::start(server().addr());
    let mortal = client_at(&proxy.connect_string());
    let other = crate::fixtures::client();
    let mortal = DoubleBarrier::new(&mortal, path, 2).expect("good");
    let other = DoubleBarrier::new(&other, path, 2).expect("good");
    std::thread::scope(|scope| {
        let dies = scope.spawn(|| mortal.enter().expect("two"));
        let inside = other.enter().expect("two");
        let dies = dies.join().expect("no panic");
        let leaves = scope.spawn(|| inside.leave());
        proxy.refuse();
        proxy.reset_all();
        leaves.join().expect("no panic").expect("the other is gone");
        assert_eq!(dies.state(), LockState::Lost);
        assert!(dies.leave().expect_err("lost").is_lock_lost());
    });
    wait_until("nothing harmful is left", SOON, || {
        let left = children(server(), path);
        left.is_empty() || left == ["ready"]
    });
}

/// `ready` came while a look was on its way that had not seen it: the slow one took it for gone again.
/// It went in by a list from before the others came, so it did not wait for them on the way out; and
/// it left `ready` behind.
#[test]
fn who_hears_of_ready_before_the_answer_of_an_older_look_knows_whom_it_met() {
    // The event is nearly always faster than the thread that waits for the answer; not always.
    let rounds = [Dialect::Curator, Dialect::Kazoo].repeat(4);
    for (round, dialect) in rounds.into_iter().enumerate() {
        let path = format!("/barriers/overtaken-{round}");
        let path = path.as_str();
        let proxy = Proxy::start(server().addr());
        let clients = [&proxy.connect_string(), &server().connect_string()]
            .map(|at| builder(at).connect().expect("a server that works"));
        let [slow, fast] = clients.each_ref().map(|client| {
            let barrier = DoubleBarrier::builder(client, path, 3).dialect(dialect);
            barrier.build().expect("good")
        });
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| slow.enter().expect("three"));
            // It has looked once, and left a watch on `ready`.
            proxy.wait_for(|seen| seen.replied(opcode::EXISTS) > 0, SOON);
            let hold = proxy.hold_reply(Matcher::next(opcode::EXISTS).with_path_containing(path));
            let second = scope.spawn(|| fast.enter().expect("three"));
            hold.wait_until_held(SOON);
            let third = fast.enter().expect("three");
            let second = second.join().expect("no panic");
            hold.release();
            let first = waits.join().expect("no panic");
            // They leave `ready` to the one who is still inside.
            drop((second, third));
            wait_until("the others are gone", SOON, || {
                children(server(), path).len() <= 2
            });
            first.leave().expect("all have left");
        });
        wait_for_children(server(), path, 0);
    }
}

/// Two members behind proxies of their own, who are inside. The first of them is not the first by
/// name, so that its node goes as soon as it leaves.
struct Inside {
    proxies: [Proxy; 2],
    clients: [zklock::Client; 2],
    members: [Membership; 2],
}

impl Inside {
    fn of(path: &str, dialect: Dialect) -> Self {
        let proxies = [(), ()].map(|()| Proxy::start(server().addr()));
        let clients = proxies
            .each_ref()
            .map(|proxy| client_at(&proxy.connect_string()));
        let members = std::thread::scope(|scope| {
            let entering = clients.each_ref().map(|client| {
                let barrier = DoubleBarrier::builder(client, path, 2).dialect(dialect);
                let barrier = barrier.build().expect("good");
                scope.spawn(move || barrier.enter().expect("two"))
            });
            entering.map(|entering| entering.join().expect("no panic"))
        });
        let mut inside = Self {
            proxies,
            clients,
            members,
        };
        if inside.members[0].path() < inside.members[1].path() {
            inside.proxies.swap(0, 1);
            inside.clients.swap(0, 1);
            inside.members.swap(0, 1);
        }
        inside
    }
}

/// A leaver's delete was lost with its connection, and it went on to remove `ready`: whoever came
/// early for the next round counted the old node, and went in alone.
#[test]
fn a_leaver_whose_delete_is_lost_is_not_counted_again() {
    for dialect in [Dialect::Curator, Dialect::Kazoo] {
        let path = format!("/barriers/ghost-{dialect:?}");
        let path = path.as_str();
        let Inside {
            proxies,
            clients,
            members: [first, second],
        } = Inside::of(path, dialect);
        let name = |member: &Membership| member.path().rsplit('/').next().map(str::to_owned);
        let ghost = name(&first).expect("a name");
        // The delete never comes to the server, and neither does what would repeat it.
        let lost = Matcher::next(opcode::DELETE).with_path_containing(&ghost);
        let trap = proxies[0].on_request(lost, Action::Reset);
        // Set before the first one goes: the next one follows at once.
        let again = Matcher::nth(opcode::DELETE, 2).with_path_containing(&ghost);
        let hold = proxies[0].hold_request(again);
        let early = std::thread::scope(|scope| {
            let leaves = scope.spawn(|| first.leave());
            trap.wait_until_sprung(SOON);
            drop(second);
            wait_until("the other is gone", SOON, || {
                children(server(), path).len() <= 2
            });
            hold.wait_until_held(SOON);
            // One comes for the next round.
            let other = crate::fixtures::client();
            let barrier = DoubleBarrier::builder(&other, path, 2).dialect(dialect);
            let barrier = barrier.build().expect("good");
            let early = barrier.enter_for(SHORT * 3).expect("answers");
            let is_alone = early.is_some();
            drop(early);
            hold.release();
            leaves
                .join()
                .expect("no panic")
                .expect("confirmed in the end");
            is_alone
        });
        assert!(!early, "{dialect:?}: it went in with a ghost");
        wait_for_children(server(), path, 0);
        drop(clients);
    }
}

/// A leave that ran out of time sent its delete once more, was told that its node was gone, and so
/// left `ready` behind, though it was the last.
#[test]
fn who_has_no_time_to_leave_removes_what_is_left() {
    let path = "/barriers/no-time-to-leave";
    let Inside {
        proxies,
        clients,
        members: [first, second],
    } = Inside::of(path, Dialect::Curator);
    let before = proxies[0].counters().requested(opcode::DELETE);
    let other = second.path().to_owned();
    let look = Matcher::next(opcode::GET_DATA).with_path_containing(&other);
    let hold = proxies[0].hold_request(look);
    let left = std::thread::scope(|scope| {
        let leaves = scope.spawn(|| first.leave_for(SHORT).expect("answers"));
        hold.wait_until_held(SOON);
        // The other one dies: it removes nothing but its node.
        clients[1].close();
        leaves.join().expect("no panic")
    });
    assert!(!left, "the other was not seen to go");
    hold.release();
    wait_for_children(server(), path, 0);
    // Its node and `ready`.
    let deletes = proxies[0].counters().requested(opcode::DELETE) - before;
    assert_eq!(deletes, 2);
    drop(second);
}

/// The slow one has its node and has not looked; the fast one goes in, leaves, and waits for it.
/// In kazoo's dialect the fast one took `ready` along, if the slow one was the first by name, and
/// both waited for ever.
#[test]
fn a_slow_member_gets_in_although_others_leave_in_kazoos_dialect() {
    let path = "/barriers/slow-kazoo";
    let proxy = Proxy::start(server().addr());
    let clients = [client_at(&proxy.connect_string()), client()];
    let [slow, fast] = clients.each_ref().map(|client| {
        let barrier = DoubleBarrier::builder(client, path, 2).dialect(Dialect::Kazoo);
        barrier.build().expect("good")
    });
    assert!(slow.enter_for(SHORT).expect("answers").is_none());
    wait_for_children(server(), path, 0);
    // Who is first by name is a coin's choice.
    for _ in 0..12 {
        let hold = proxy.hold_reply(Matcher::next(opcode::CREATE).with_path_containing(path));
        std::thread::scope(|scope| {
            let enters = scope.spawn(|| slow.enter_for(T));
            hold.wait_until_held(SOON);
            wait_for_children(server(), path, 1);
            let inside = fast.enter().expect("two are there");
            let own = inside.path().rsplit('/').next().expect("a name").to_owned();
            let first = children(server(), path).into_iter().min();
            let leaves = scope.spawn(|| inside.leave_for(SOON).expect("answers"));
            if first.is_some_and(|first| first != own) {
                wait_until("the fast one is gone", SOON, || {
                    !children(server(), path).contains(&own)
                });
            }
            hold.release();
            let inside = enters.join().expect("no panic").expect("answers");
            let inside = inside.expect("it was counted");
            assert!(inside.leave_for(SOON).expect("answers"));
            assert!(leaves.join().expect("no panic"), "both have left");
        });
        wait_for_children(server(), path, 0);
    }
}
