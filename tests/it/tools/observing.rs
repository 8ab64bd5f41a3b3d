//! What an observer is told, and that it holds up nobody.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use testbed::{Action, Direction, Matcher, Proxy, opcode};
use zklock::event::{
    Acquired, Label, Lost, Miss, Missed, OrphanCleaned, Queued, Released, Retrying, TenureEnded,
    Way,
};
use zklock::{
    Client, ConnectionEvent, LockRegistry, LossReason, MultiLock, Mutex, MutexBuilder, Observer,
    RwLock, Semaphore,
};

use crate::fixtures::{SOON, T, mutex, server, wait_for_children};

#[derive(Debug)]
enum Event {
    Connection(ConnectionEvent),
    Queued(Queued),
    Acquired(Acquired),
    Missed(Missed),
    Released(Released),
    TenureEnded(TenureEnded),
    Lost(Lost),
    OrphanCleaned(OrphanCleaned),
    Retrying(Retrying),
}

struct Notes(Sender<Event>);

macro_rules! notes {
    ($($method:ident($of:ty) -> $event:ident;)*) => {
        impl Observer for Notes {
            $(fn $method(&self, event: &$of) {
                let _ = self.0.send(Event::$event(event.clone()));
            })*
        }
    };
}

notes! {
    connection(ConnectionEvent) -> Connection;
    queued(Queued) -> Queued;
    acquired(Acquired) -> Acquired;
    missed(Missed) -> Missed;
    released(Released) -> Released;
    tenure_ended(TenureEnded) -> TenureEnded;
    lost(Lost) -> Lost;
    orphan_cleaned(OrphanCleaned) -> OrphanCleaned;
    retrying(Retrying) -> Retrying;
}

/// A client that is observed.
fn observed(servers: &str) -> (Client, Receiver<Event>) {
    let (tell, told) = unbounded();
    let client = Client::builder(servers)
        .session_timeout(T)
        .observer(Notes(tell))
        .connect()
        .expect("a server that works");
    let first = told.recv_timeout(SOON).expect("the first connection");
    assert!(matches!(
        first,
        Event::Connection(ConnectionEvent::Connected { .. })
    ));
    (client, told)
}

/// Waits for an event that `pick` knows; others are passed over.
#[track_caller]
fn wait_for<R>(told: &Receiver<Event>, pick: impl Fn(&Event) -> Option<R>) -> R {
    let deadline = Instant::now() + SOON;
    loop {
        let event = told.recv_deadline(deadline).expect("it is told in time");
        if let Some(found) = pick(&event) {
            return found;
        }
    }
}

/// What was told until the client was closed, which waits for that.
fn all(client: &Client, told: &Receiver<Event>) -> Vec<Event> {
    client.close();
    told.try_iter().collect()
}

fn build(client: &Client, path: &str, set: impl FnOnce(MutexBuilder) -> MutexBuilder) -> Mutex {
    let builder = Mutex::builder(client, path).label("a");
    set(builder).build().expect("a good path")
}

fn queued(event: &Event) -> Option<()> {
    match event {
        Event::Queued(queued) => is_a(&queued.label).then_some(()),
        _ => None,
    }
}

fn is_a(label: &Label) -> bool {
    label.as_deref() == Some("a")
}

#[test]
fn a_lock_and_an_unlock_are_told_in_order() {
    let (client, told) = observed(&server().connect_string());
    let lock = build(&client, "/observe/plain", |lock| lock);
    let guard = lock.lock().expect("free");
    let inner = lock.lock().expect("re-entry");
    inner.unlock().expect("held");
    guard.unlock().expect("held");
    let stats = client.stats();
    assert_eq!((stats.sessions, stats.asked, stats.tenures), (1, 1, 1));
    assert_eq!((stats.waiting, stats.held, stats.unconfirmed), (0, 0, 0));
    assert!(stats.asked_time > Duration::ZERO);
    assert!(stats.remaining_lease.is_some_and(|left| left <= T));
    match &all(&client, &told)[..] {
        [
            Event::Acquired(acquired),
            Event::TenureEnded(ended),
            Event::Released(released),
            Event::Connection(ConnectionEvent::Closed),
        ] => {
            assert!(is_a(&acquired.label) && acquired.by == Way::Asked);
            assert!(acquired.waited > Duration::ZERO);
            assert!(is_a(&ended.label) && ended.lasted >= released.held_for);
            assert!(is_a(&released.label) && released.confirmed);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_path_is_never_a_label_by_itself() {
    let (client, told) = observed(&server().connect_string());
    drop(mutex(&client, "/observe/secret").lock().expect("free"));
    assert!(wait_for(&told, |event| match event {
        Event::Acquired(acquired) => Some(acquired.label.is_none()),
        _ => None,
    }));
    let rest = all(&client, &told);
    assert!(!format!("{rest:?}").contains("secret"), "{rest:?}");
}

#[test]
fn hand_overs_inside_a_process_are_told() {
    let (client, told) = observed(&server().connect_string());
    let lock = build(&client, "/observe/local", |lock| lock);
    let guard = lock.lock().expect("free");
    std::thread::scope(|scope| {
        let next = scope.spawn(|| lock.lock().expect("its turn").unlock());
        wait_for(&told, queued);
        assert_eq!(client.stats().waiting, 1);
        guard.unlock().expect("held");
        next.join().expect("no panic").expect("held");
    });
    assert_eq!(client.stats().handed_over, 1);
    match &all(&client, &told)[..] {
        [
            Event::Released(first),
            Event::Acquired(second),
            Event::TenureEnded(_),
            Event::Released(last),
            Event::Connection(_),
        ] => {
            assert!(first.confirmed && last.confirmed);
            assert!(is_a(&second.label) && second.by == Way::HandedOver);
            assert!(second.waited > Duration::ZERO);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lingering_lock_tells_each_turn() {
    let (client, told) = observed(&server().connect_string());
    let lock = build(&client, "/observe/linger", |lock| lock.linger(SOON));
    for _ in 0..2 {
        lock.lock().expect("ours").unlock().expect("ours");
    }
    lock.release_idle().expect("idle");
    match &all(&client, &told)[..] {
        [
            Event::Acquired(first),
            Event::Released(_),
            Event::Acquired(second),
            Event::Released(_),
            Event::TenureEnded(_),
            Event::Connection(_),
        ] => assert_eq!((first.by, second.by), (Way::Asked, Way::Lingering)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn waiting_for_another_process_is_told_and_so_is_giving_up() {
    let (client, told) = observed(&server().connect_string());
    let lock = build(&client, "/observe/busy", |lock| lock);
    let other = crate::fixtures::client();
    let held = mutex(&other, "/observe/busy").lock().expect("free");
    let token = zklock::CancelToken::new();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let options = zklock::AcquireOptions::new().cancel(&token);
            lock.lock_with(options).map(drop)
        });
        wait_for(&told, queued);
        assert_eq!(client.stats().waiting, 1);
        token.cancel();
        assert!(waits.join().expect("no panic").is_err());
    });
    assert!(lock.try_lock().expect("an answer").is_none());
    let short = Duration::from_millis(50);
    assert!(lock.try_lock_for(short).expect("an answer").is_none());
    drop(held);
    let stats = client.stats();
    assert_eq!((stats.busy, stats.timed_out, stats.cancelled), (1, 1, 1));
    let told = all(&client, &told);
    let missed = told.iter().filter_map(|event| match event {
        Event::Missed(missed) => Some((is_a(&missed.label), missed.why)),
        _ => None,
    });
    assert_eq!(
        missed.collect::<Vec<_>>(),
        [
            (true, Miss::Cancelled),
            (true, Miss::Busy),
            (true, Miss::TimedOut)
        ]
    );
}

#[test]
fn a_removed_node_and_a_closed_client_are_told_as_losses() {
    let (client, told) = observed(&server().connect_string());
    let lock = build(&client, "/observe/lost", |lock| lock);
    let lost = |event: &Event| match event {
        Event::Lost(lost) => Some((is_a(&lost.label), lost.reason)),
        _ => None,
    };
    let guard = lock.lock().expect("free");
    let holder = &lock.participants().expect("an answer")[0];
    assert!(lock.break_lock(holder).expect("an answer"));
    assert_eq!(wait_for(&told, lost), (true, LossReason::Removed));
    assert!(guard.unlock().is_err());
    let unconfirmed = |event: &Event| match event {
        Event::Released(released) => Some(released.confirmed),
        _ => None,
    };
    assert!(!wait_for(&told, unconfirmed));
    let _guard = lock.lock().expect("free");
    client.close();
    assert_eq!(wait_for(&told, lost), (true, LossReason::Closed));
    assert_eq!(client.stats().losses, 2);
}

#[test]
fn trouble_with_the_connection_is_told() {
    let proxy = Proxy::start(server().addr());
    let (client, told) = observed(&proxy.connect_string());
    let lock = build(&client, "/observe/retry", |lock| lock);
    drop(lock.lock().expect("free"));
    // The request of the acquire is lost with its connection.
    let create = Matcher::next(opcode::CREATE).with_path_containing(lock.path());
    let trap = proxy.on_request(create, Action::Reset);
    lock.lock()
        .expect("on the next connection")
        .unlock()
        .expect("held");
    trap.wait_until_sprung(SOON);
    let events = all(&client, &told);
    let retried = events.iter().any(|event| match event {
        Event::Retrying(retrying) => retrying.times == 1,
        _ => false,
    });
    let seen: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Connection(event) => Some(event.clone()),
            _ => None,
        })
        .collect();
    assert!(retried, "{events:?}");
    assert_eq!(
        seen,
        [
            ConnectionEvent::Suspended,
            ConnectionEvent::Reconnected,
            ConnectionEvent::Closed
        ]
    );
    assert!(client.stats().retries >= 1);
    assert_eq!((client.stats().breaks, client.stats().reconnects), (1, 1));
}

#[test]
fn what_is_cleaned_up_later_is_told() {
    let proxy = Proxy::start(server().addr());
    let (client, told) = observed(&proxy.connect_string());
    let lock = build(&client, "/observe/orphan", |lock| lock);
    let other = crate::fixtures::client();
    let held = mutex(&other, "/observe/orphan").lock().expect("free");
    let token = zklock::CancelToken::new();
    std::thread::scope(|scope| {
        let options = zklock::AcquireOptions::new().cancel(&token);
        let waits = scope.spawn(|| lock.lock_with(options).map(drop));
        wait_for_children(server(), "/observe/orphan", 2);
        proxy.black_hole(Direction::Both);
        token.cancel();
        assert!(waits.join().expect("no panic").is_err());
    });
    proxy.heal();
    let left = wait_for(&told, |event| match event {
        Event::OrphanCleaned(cleaned) => Some(cleaned.left),
        _ => None,
    });
    assert_eq!(left, 0);
    assert!(client.stats().orphans_cleaned >= 1);
    drop(held);
}

#[test]
fn readers_and_permits_are_told_of_like_locks() {
    let (client, told) = observed(&server().connect_string());
    let rw = RwLock::builder(&client, "/observe/rw").label("a");
    let rw = rw.build().expect("a good path");
    let outer = rw.read().expect("free");
    std::thread::scope(|scope| {
        let joins = scope.spawn(|| rw.read().expect("shared").unlock());
        joins.join().expect("no panic").expect("held");
    });
    outer.unlock().expect("held");
    let permits = Semaphore::builder(&client, "/observe/permits").max(1);
    let permits = permits.label("a").build().expect("a good path");
    permits.acquire().expect("free").release().expect("held");
    let told = all(&client, &told);
    let ways: Vec<_> = told
        .iter()
        .filter_map(|event| match event {
            Event::Acquired(acquired) => Some((is_a(&acquired.label), acquired.by)),
            _ => None,
        })
        .collect();
    // The second reader may find out by a question that nobody waits, which is no node of its own.
    assert_eq!(
        ways,
        [(true, Way::Asked), (true, Way::Shared), (true, Way::Asked)]
    );
    let count = |what: fn(&Event) -> bool| told.iter().filter(|event| what(event)).count();
    let released = |event: &Event| {
        matches!(
            event,
            Event::Released(Released {
                confirmed: true,
                ..
            })
        )
    };
    assert_eq!(count(released), 3, "{told:?}");
    assert_eq!(count(|event| matches!(event, Event::TenureEnded(_))), 2);
}

/// Stuck in its first event until the other end of its channel goes.
struct Stuck(Receiver<()>);

impl Observer for Stuck {
    fn connection(&self, _: &ConnectionEvent) {
        let _ = self.0.recv();
    }
}

#[test]
fn a_stuck_observer_holds_up_no_lock_and_no_loss() {
    let (release, stuck) = bounded(0);
    let client = Client::builder(&server().connect_string())
        .session_timeout(T)
        .observer(Stuck(stuck))
        .connect()
        .expect("a server that works");
    let lock = build(&client, "/observe/stuck", |lock| lock);
    for _ in 0..10 {
        lock.lock().expect("free").unlock().expect("held");
    }
    let guard = lock.lock().expect("free");
    let holder = &lock.participants().expect("an answer")[0];
    assert!(lock.break_lock(holder).expect("an answer"));
    assert_eq!(guard.lost().recv_timeout(SOON), Ok(LossReason::Removed));
    drop(release);
}

struct Panics(Sender<()>);

impl Observer for Panics {
    fn acquired(&self, _: &Acquired) {
        let _ = self.0.send(());
        std::panic::resume_unwind(Box::new("an observer's own fault"));
    }
}

#[test]
fn each_of_several_observers_hears_all() {
    let (tell, told) = unbounded();
    let (tell_of_panic, panics) = unbounded();
    let client = Client::builder(&server().connect_string())
        .observer(Panics(tell_of_panic))
        .observer(Notes(tell))
        .connect()
        .expect("a server that works");
    let lock = build(&client, "/observe/both", |lock| lock);
    lock.lock().expect("free").unlock().expect("held");
    // The first one panics, and keeps nothing from the second.
    match &all(&client, &told)[..] {
        [
            Event::Connection(ConnectionEvent::Connected { .. }),
            Event::Acquired(_),
            Event::TenureEnded(_),
            Event::Released(_),
            Event::Connection(ConnectionEvent::Closed),
        ] => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(panics.try_iter().count(), 1);
}

/// What was told of acquires and releases, shortened to labels.
fn by_label(told: &[Event]) -> Vec<(String, &'static str)> {
    let of = |label: &Label, what| (label.as_deref().unwrap_or("-").to_owned(), what);
    let known = told.iter().filter_map(|event| match event {
        Event::Acquired(it) if it.by == Way::Parts => Some(of(&it.label, "acquired, parts")),
        Event::Acquired(it) => Some(of(&it.label, "acquired")),
        Event::Missed(it) if it.why == Miss::Busy => Some(of(&it.label, "busy")),
        Event::Missed(it) => Some(of(&it.label, "missed")),
        Event::Released(it) if it.confirmed => Some(of(&it.label, "released")),
        Event::Released(it) => Some(of(&it.label, "lost")),
        _ => None,
    });
    known.collect()
}

#[test]
fn a_multi_lock_with_a_label_is_told_of_beside_its_parts() {
    let (client, told) = observed(&server().connect_string());
    let a = build(&client, "/observe/multi/a", |lock| lock);
    let b = build(&client, "/observe/multi/b", |lock| lock.label("b"));
    let both = || MultiLock::builder().with(&a).with(&b);
    let quiet = both().build().expect("two paths");
    let named = both().label("both").build().expect("two paths");
    quiet.lock().expect("free").unlock().expect("held");
    drop(named.lock().expect("free"));
    let other = crate::fixtures::client();
    let held = mutex(&other, "/observe/multi/b").lock().expect("free");
    assert!(named.try_lock().expect("an answer").is_none());
    drop(held);
    let guard = named.lock().expect("free");
    let holder = &b.participants().expect("an answer")[0];
    assert!(b.break_lock(holder).expect("an answer"));
    assert_eq!(guard.lost().recv_timeout(SOON), Ok(LossReason::Removed));
    assert!(guard.unlock().is_err());
    let stats = client.stats();
    assert_eq!((stats.asked, stats.busy), (6, 1), "parts alone are counted");
    let told = by_label(&all(&client, &told));
    let told: Vec<_> = told.iter().map(|(label, it)| (&**label, *it)).collect();
    let (parts, back) = (
        [("a", "acquired"), ("b", "acquired")],
        [("b", "released"), ("a", "released")],
    );
    let expected = [
        &parts[..],
        &back,
        &parts,
        &[("both", "acquired, parts")],
        &back,
        &[("both", "released"), ("b", "busy"), ("both", "busy")],
        &parts,
        &[
            ("both", "acquired, parts"),
            ("b", "lost"),
            ("a", "released"),
        ],
        &[("both", "lost")],
    ];
    assert_eq!(told, expected.concat());
}

#[test]
fn the_locks_of_a_registry_share_its_label() {
    let (client, told) = observed(&server().connect_string());
    let locks = LockRegistry::builder(&client, "/observe/registry").label("a");
    let locks = locks.build().expect("a good path");
    for key in ["secret/1", "secret/2"] {
        let lock = locks.get(key).expect("a good key");
        drop(lock.lock().expect("free"));
    }
    let told = all(&client, &told);
    let turn = |_| [("a".to_owned(), "acquired"), ("a".to_owned(), "released")];
    assert_eq!(by_label(&told), (0..2).flat_map(turn).collect::<Vec<_>>());
    assert!(!format!("{told:?}").contains("secret"), "{told:?}");
}

#[test]
fn a_writer_that_may_not_read_any_more_is_told_of_its_failure() {
    let (client, told) = observed(&server().connect_string());
    let rw = RwLock::builder(&client, "/observe/under").label("a");
    let rw = rw.build().expect("a good path");
    let writing = rw.write().expect("free");
    let holder = &rw.participants().expect("an answer")[0];
    assert!(rw.break_lock(holder).expect("an answer"));
    assert_eq!(writing.lost().recv_timeout(SOON), Ok(LossReason::Removed));
    assert!(rw.read().is_err());
    drop(writing);
    let told = by_label(&all(&client, &told));
    let told: Vec<_> = told.iter().map(|(_, it)| *it).collect();
    assert_eq!(told, ["acquired", "missed", "lost"]);
}

#[test]
fn an_observer_that_panics_is_told_of_what_comes_next() {
    let (tell, told) = unbounded();
    let client = Client::builder(&server().connect_string())
        .observer(Panics(tell))
        .connect()
        .expect("a server that works");
    let lock = mutex(&client, "/observe/panics");
    for _ in 0..2 {
        lock.lock().expect("free").unlock().expect("held");
        told.recv_timeout(SOON).expect("told again");
    }
}
