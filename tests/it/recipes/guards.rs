//! What all guards share: they own what they stand on, speak each for itself, and show others how
//! they stand.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testbed::{Action, Matcher, Proxy, opcode, wait_until};
use zklock::{
    DowngradeError, HoldView, LockRegistry, LockState, LossReason, MultiLock, Mutex, RetryPolicy,
    RwLock, Semaphore, SemaphoreMutex,
};

use crate::fixtures::{SOON, builder, client, client_at, mutex, server, wait_for_children};

/// A guard is stored without its lock, and goes on when lock and client are dropped.
#[test]
fn a_guard_outlives_its_lock_and_its_client() {
    let path = "/guards/owner";
    let guard = {
        let client = client();
        mutex(&client, path).lock().expect("free")
    };
    assert!(guard.is_held());
    wait_for_children(server(), path, 1);
    guard.unlock().expect("still connected");
    wait_for_children(server(), path, 0);
}

#[test]
fn a_lock_of_a_registry_is_locked_in_one_line() -> zklock::Result<()> {
    let client = client();
    let registry = LockRegistry::new(&client, "/guards/registry")?;
    let guard = registry.get("key")?.lock()?;
    assert!(guard.is_held());
    // The guard keeps the registry's lock: another one for the same key would wait for it.
    assert_eq!(registry.expire_unused_older_than(Duration::ZERO)?, 0);
    let again = registry.get("key")?.try_lock()?;
    assert!(again.is_some(), "re-entrant");
    Ok(())
}

/// Of four readers of a process one was told of a loss, as all looked at one channel.
#[test]
fn every_guard_is_told() {
    let (ours, theirs) = (client(), client());
    let path = "/guards/told";
    let lock = RwLock::new(&ours, path).expect("good");
    let told = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let guard = lock.read().expect("shared");
                    // Both guards of one thread, and a view.
                    let again = lock.read().expect("re-entrant");
                    let view = guard.view();
                    [guard.lost(), again.lost(), view.lost()]
                        .map(|lost| lost.recv_timeout(SOON).ok())
                })
            })
            .collect();
        let breaker = RwLock::new(&theirs, path).expect("good");
        // All of them are inside before any node is broken.
        wait_until("all inside", SOON, || lock.is_held_in_this_process());
        wait_until("broken", SOON, || {
            for participant in breaker.participants().expect("answers") {
                breaker.break_lock(&participant).expect("answers");
            }
            readers
                .iter()
                .all(std::thread::ScopedJoinHandle::is_finished)
        });
        readers
            .into_iter()
            .map(|reader| reader.join().expect("no panic"))
            .collect::<Vec<_>>()
    });
    for reader in told {
        assert_eq!(reader, [Some(LossReason::Removed); 3]);
    }
}

/// A view belongs to one hold: it does not take the next one's for its own.
#[test]
fn a_view_ends_with_its_hold() {
    let client = client();
    let lock = mutex(&client, "/guards/view");
    let guard = lock.lock().expect("free");
    let view = guard.view();
    let other = view.clone();
    assert_eq!(view.state(), LockState::Held);
    assert_eq!(
        view.fencing_token().expect("known"),
        guard.fencing_token().expect("known")
    );
    let own = guard.lost().clone();
    std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            let guard = lock.lock().expect("handed over");
            // In the same tenure, and still not the view's.
            assert!(guard.is_held());
            assert_eq!(view.state(), LockState::Lost);
        });
        wait_until("queued", SOON, || !next.is_finished());
        drop(guard);
        next.join().expect("no panic");
    });
    assert_eq!(view.lost().recv_timeout(SOON), Ok(LossReason::Released));
    assert_eq!(other.lost().recv_timeout(SOON), Ok(LossReason::Released));
    assert!(
        own.try_recv().is_err(),
        "a release is no loss to its own guard"
    );
}

#[test]
fn a_multi_lock_owns_its_parts_and_takes_permits() {
    let client = client();
    let all = {
        let lock = mutex(&client, "/guards/all/mutex");
        let pool = Semaphore::new(&client, "/guards/all/pool", 3).expect("good");
        let builder = MultiLock::builder().with(lock).with(pool.permits(2));
        builder.build().expect("two paths")
    };
    let pool = Semaphore::new(&client, "/guards/all/pool", 3).expect("good");
    let guard = all.lock().expect("free");
    let view = guard.view();
    assert_eq!(pool.available().expect("answers"), 1);
    assert!(view.is_held());
    guard.unlock().expect("a server that works");
    assert_eq!(pool.available().expect("answers"), 3);
    assert!(!view.is_held());
}

/// A failed downgrade gives the guard back, or converts into the error.
#[test]
fn a_failed_downgrade_keeps_the_guard() {
    let client = client();
    let lock = RwLock::new(&client, "/guards/downgrade").expect("good");
    let writing = lock.write().expect("free");
    client.close();
    let failed = writing.downgrade().expect_err("closed");
    assert!(!failed.to_string().is_empty());
    let guard = failed.into_guard();
    assert_eq!(guard.state(), LockState::Lost);
    let error = zklock::Error::from(guard.downgrade().expect_err("closed"));
    assert!(error.is_closed() || error.is_lock_lost(), "{error}");
}

/// An error of servers that no server has.
const UNHEARD_OF: i32 = -12_345;

/// A writer whose downgrade failed though its lock is not lost.
struct Failed {
    lock: RwLock,
    view: HoldView,
    error: DowngradeError,
    /// Of another client.
    there: RwLock,
    _proxy: Proxy,
}

fn failed_downgrade(path: &str) -> Failed {
    let proxy = Proxy::start(server().addr());
    let client = builder(&proxy.connect_string())
        .retry(RetryPolicy::new().give_up_after(Duration::from_millis(100)))
        .connect()
        .expect("a server that works");
    let lock = RwLock::new(&client, path).expect("good");
    let writing = lock.write().expect("free");
    let view = writing.view();
    let of_reader = Matcher::every(opcode::CREATE).with_path_containing(path);
    let refused = proxy.on_request(of_reader, Action::Refuse(UNHEARD_OF));
    let error = writing.downgrade().expect_err("refused until it gives up");
    assert!(error.error().is_connection_loss(), "{error}");
    refused.disarm();
    let there = RwLock::new(&crate::fixtures::client(), path).expect("good");
    let busy = there.try_read().expect("answers");
    assert!(busy.is_none(), "the lock is kept with the error");
    Failed {
        lock,
        view,
        error,
        there,
        _proxy: proxy,
    }
}

/// `?` puts it into what other crates take errors in, and these go wherever errors go.
#[test]
fn a_failed_downgrade_is_dropped_on_another_thread() {
    let failed = failed_downgrade("/guards/downgrade-sent");
    let (lock, there) = (&failed.lock, &failed.there);
    let work = |failed| -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Err::<(), DowngradeError>(failed)?;
        Ok(())
    };
    let boxed = work(failed.error).expect_err("as it says");
    assert!(failed.view.is_held());
    assert!(lock.is_write_held_by_current_thread());
    assert_eq!(lock.write_hold_count(), 1);
    let other = std::thread::spawn(move || drop(boxed));
    other.join().expect("no panic");
    assert!(!failed.view.is_held());
    assert!(!lock.is_write_held_by_current_thread());
    assert_eq!(lock.write_hold_count(), 0);
    assert!(!lock.is_held_in_this_process());
    assert!(there.try_write().expect("answers").is_some());
    // For the thread that wrote as for any other.
    assert!(lock.try_read().expect("answers").is_some());
}

/// What the thread that wrote has taken meanwhile stays, until it gives that back itself.
#[test]
fn a_failed_downgrade_elsewhere_leaves_the_other_guards() {
    let failed = failed_downgrade("/guards/downgrade-again");
    let (lock, there) = (&failed.lock, &failed.there);
    let again = lock.write().expect("re-entrant");
    let reading = lock.read().expect("a writer reads");
    assert_eq!(lock.write_hold_count(), 2);
    let other = std::thread::spawn(move || drop(failed.error));
    other.join().expect("no panic");
    assert_eq!(lock.write_hold_count(), 1);
    assert!(there.try_read().expect("answers").is_none());
    drop(again);
    assert!(!lock.is_write_held_by_current_thread());
    let asked = lock.try_write().expect_err("this thread reads");
    assert!(asked.is_would_deadlock(), "{asked}");
    assert!(
        there.try_read().expect("answers").is_some(),
        "beside a reader"
    );
    drop(reading);
    assert!(there.try_write().expect("answers").is_some());
}

/// The guard comes back on its own thread, with its views; on another it would be a second owner.
#[test]
fn a_failed_downgrade_gives_the_guard_to_its_own_thread_only() {
    let failed = failed_downgrade("/guards/downgrade-own");
    let guard = failed.error.into_guard();
    assert_eq!(failed.lock.write_hold_count(), 1);
    assert!(guard.is_held());
    assert!(failed.view.is_held());
    drop(guard);
    assert!(!failed.view.is_held());
    assert!(failed.there.try_write().expect("answers").is_some());

    let path = "/guards/downgrade-of-another";
    let failed = failed_downgrade(path);
    let other = std::thread::spawn(move || drop(failed.error.into_guard()));
    let panic = other.join().expect_err("not its guard");
    let said = panic.downcast_ref::<String>().expect("a text");
    assert!(said.contains(path), "{said}");
    assert!(!failed.lock.is_write_held_by_current_thread());
    assert!(failed.there.try_write().expect("answers").is_some());
}

/// A writer who has lost its lock and has no contact is told so, and does not wait for contact.
#[test]
fn a_lost_writer_does_not_wait_to_read() {
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let lock = RwLock::new(&client, "/guards/cut-off").expect("good");
    let writing = lock.write().expect("free");
    proxy.refuse();
    proxy.reset_all();
    let error = writing
        .downgrade()
        .expect_err("no contact until the session is over");
    assert!(error.error().is_lock_lost(), "{error}");
}

/// A lock that is only kept gives way to a try of another process; one in use does not.
#[test]
fn a_try_gets_a_lock_that_only_lingers() {
    let (keeper, other) = (client(), client());
    let path = "/guards/lingers";
    let builder = Mutex::builder(&keeper, path).linger(Duration::from_secs(3600));
    let kept = builder.build().expect("good");
    let lock = mutex(&other, path);
    let inside = kept.lock().expect("free");
    assert!(lock.try_lock().expect("answers").is_none(), "in use");
    drop(inside);
    // The try that queued may have been seen, which ends a tenure. The next one is kept.
    drop(kept.lock().expect("free"));
    wait_for_children(server(), path, 1);
    let guard = lock.try_lock().expect("answers");
    assert!(guard.is_some_and(|guard| guard.is_held()));
}

/// A waiter whose node is removed by hand queues again. Behind a holder that goes before long it
/// hears of that in time; a lock that is kept was seen to have nobody who waits, and stayed.
#[test]
fn a_removed_waiter_queues_again_behind_a_lock_that_lingers() {
    let (keeper, other) = (client(), client());
    let path = "/guards/removed";
    let builder = Mutex::builder(&keeper, path).linger(Duration::from_secs(3600));
    let kept = builder.build().expect("good");
    let lock = mutex(&other, path);
    let inside = kept.lock().expect("free");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().expect("its turn").is_held());
        wait_for_children(server(), path, 2);
        let who = kept.participants().expect("answers");
        assert!(kept.break_lock(&who[1]).expect("answers"));
        // The holder has heard of that as well before this is answered, and forgets who waited.
        assert_eq!(kept.participants().expect("answers").len(), 1);
        drop(inside);
        assert!(waiter.join().expect("no panic"));
    });
}

/// A time-out says which lock it was about.
#[test]
fn an_error_names_the_lock() {
    let client = client();
    let path = "/guards/names";
    let lock = mutex(&client, path);
    let _held = lock.lock().expect("free");
    let options = || zklock::AcquireOptions::new().timeout(Duration::from_millis(1));
    let error = std::thread::scope(|scope| {
        let waits = scope.spawn(|| lock.lock_with(options()).map(drop));
        waits.join().expect("no panic").expect_err("held")
    });
    assert!(
        error.is_timeout() && error.to_string().contains(path),
        "{error}"
    );
    let elsewhere = mutex(&crate::fixtures::client(), path);
    let error = elsewhere.lock_with(options()).map(drop).expect_err("held");
    assert!(
        error.is_timeout() && error.to_string().contains(path),
        "{error}"
    );
}

/// With the last handle of a client its session ends. A release by a guard that was the last handle
/// once let go of it before the answer was judged, and told of a loss that was none.
#[test]
fn the_last_handle_of_a_client_is_given_back_without_a_loss() {
    let path = "/guards/last";
    let permit = {
        let pool = Semaphore::new(&client(), path, 2).expect("good");
        pool.acquire_many(2).expect("free")
    };
    permit.release().expect("a permit is ours until it is gone");
    wait_for_children(server(), &format!("{path}/leases"), 0);
    let path = "/guards/last-one";
    let guard = {
        let lock = SemaphoreMutex::new(&client(), path).expect("good");
        lock.lock().expect("free")
    };
    guard.unlock().expect("ours until it is gone");
    wait_for_children(server(), &format!("{path}/leases"), 0);
    let path = "/guards/last-of-several";
    let all = {
        let client = client();
        let lock = mutex(&client, &format!("{path}/mutex"));
        let shared = RwLock::new(&client, &format!("{path}/rw")).expect("good");
        let pool = Semaphore::new(&client, &format!("{path}/pool"), 2).expect("good");
        let builder = MultiLock::builder().with(lock).with(pool.permits(2));
        let all = builder.with(shared.read_side()).build().expect("good");
        all.lock().expect("free")
    };
    all.unlock().expect("ours until all are gone");
    for folder in ["mutex", "rw", "pool/leases"] {
        wait_for_children(server(), &format!("{path}/{folder}"), 0);
    }
}

/// A retired guard's views are Lost and it holds all the same, until it is given back.
#[test]
fn a_retired_guard_holds_until_its_workers_have_heard() {
    let client = client();
    let path = "/guards/retired";
    let lock = mutex(&client, path);
    let other = mutex(&crate::fixtures::client(), path);
    let guard = lock.lock().expect("free");
    let (view, told) = (guard.view(), guard.view());
    let working = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            let _guard = other.lock().expect("its turn");
            assert!(!working.load(Ordering::SeqCst), "two work");
        });
        wait_for_children(server(), path, 2);
        let worker = scope.spawn(|| {
            assert_eq!(told.lost().recv(), Ok(LossReason::Released));
            assert!(!view.is_held() && view.remaining().is_zero());
            working.store(false, Ordering::SeqCst);
        });
        guard.retire();
        guard.retire();
        worker.join().expect("no panic");
        assert!(guard.is_held() && guard.lost().is_empty());
        assert!(!guard.view().is_held(), "a later view, too");
        guard.unlock().expect("ours until now");
        next.join().expect("no panic");
    });

    let permits = Semaphore::new(&client, "/guards/retired-permits", 1).expect("a good path");
    let permit = permits.acquire().expect("free");
    let view = permit.view();
    permit.retire();
    assert!(!view.is_held() && permit.is_held());
    drop(permit);
    let both = MultiLock::builder().with(&lock).with(permits.permits(1));
    let both = both.build().expect("two parts").lock().expect("free");
    let view = both.view();
    both.retire();
    assert!(!view.is_held() && both.is_held());
}
