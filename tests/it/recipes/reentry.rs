//! Re-entry, where it is refused: locks that are built for threads on which unrelated work meets.

use std::fmt::Debug;
use std::time::Duration;

use zklock::{AcquireOptions, MultiLock, Mutex, Result, RwLock, SimpleMutex};

use crate::fixtures::{SOON, children, client, server};

#[track_caller]
fn refused<T: Debug>(result: Result<T>) {
    let error = result.expect_err("this thread is inside");
    assert!(error.is_would_deadlock(), "{error}");
    assert!(error.to_string().contains("reentrant(false)"), "{error}");
}

/// Two jobs that a pool ran on one thread, the second while the first one waited, were both inside.
#[test]
fn a_mutex_without_re_entry_refuses_its_own_thread() {
    let client = client();
    let build = || Mutex::builder(&client, "/reentry/mutex").reentrant(false);
    for lock in [build().build(), build().linger(SOON).build()] {
        let lock = lock.expect("a good path");
        let guard = lock.lock().expect("free");
        refused(lock.lock());
        refused(lock.clone().try_lock());
        refused(lock.try_lock_for(SOON));
        refused(lock.try_lock_for(Duration::ZERO));
        refused(lock.lock_with(AcquireOptions::new()));
        let several = MultiLock::builder().with(&lock).build().expect("one lock");
        refused(several.lock());
        refused(several.try_lock());
        assert!(guard.is_held());
        assert_eq!(lock.hold_count(), 1);
        std::thread::scope(|scope| {
            let busy = scope.spawn(|| lock.try_lock().map(|guard| guard.is_none()));
            assert!(
                busy.join()
                    .expect("no panic")
                    .expect("others just find it busy")
            );
        });
        guard.unlock().expect("ours");
        drop(lock.lock().expect("free again"));
        lock.release_idle().expect("ours");
    }
    assert!(children(server(), "/reentry/mutex").is_empty());
}

#[test]
fn a_simple_mutex_without_re_entry_refuses_its_own_thread() {
    let lock = SimpleMutex::builder(&client(), "/reentry/simple")
        .reentrant(false)
        .build();
    let lock = lock.expect("a good path");
    let guard = lock.lock().expect("free");
    refused(lock.lock());
    refused(lock.try_lock());
    guard.unlock().expect("ours");
    drop(lock.lock().expect("free again"));
}

#[test]
fn a_read_write_lock_without_re_entry_refuses_its_own_thread() {
    let lock = RwLock::builder(&client(), "/reentry/rw")
        .reentrant(false)
        .build();
    let lock = lock.expect("a good path");
    let reading = lock.read().expect("free");
    refused(lock.read());
    refused(lock.try_read());
    refused(lock.read_with(AcquireOptions::new()));
    assert!(lock.write().is_err_and(|error| error.is_would_deadlock()));
    std::thread::scope(|scope| {
        let also = scope.spawn(|| lock.read().map(drop));
        also.join()
            .expect("no panic")
            .expect("other readers get in");
    });
    drop(reading);
    let writing = lock.write().expect("free");
    refused(lock.write());
    refused(lock.try_write());
    refused(lock.try_write_for(SOON));
    refused(lock.read());
    refused(lock.try_read_for(SOON));
    let sides = [
        MultiLock::builder().with(lock.read_side()),
        MultiLock::builder().with(lock.write_side()),
    ];
    for side in sides {
        refused(side.build().expect("one lock").lock());
    }
    // The one way from one side to the other.
    let reading = writing.downgrade().expect("ours");
    refused(lock.read());
    reading.unlock().expect("ours");
    assert!(children(server(), "/reentry/rw").is_empty());
}

/// What a job finds that a thread of a pool takes up while it holds `lock` and waits for another job.
fn met_by_a_stolen_job(lock: &Mutex) -> Result<bool> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build();
    let pool = pool.expect("two threads");
    let (begun, has_begun) = crossbeam_channel::bounded::<()>(1);
    let (tell, met) = crossbeam_channel::bounded(1);
    let (told, is_told) = crossbeam_channel::bounded::<()>(1);
    let unrelated = {
        let lock = lock.clone();
        move |_: &rayon::Scope<'_>| {
            let entered = lock.try_lock().map(|guard| guard.is_some());
            tell.send(entered).expect("somebody listens");
            told.send(()).expect("somebody listens");
        }
    };
    pool.scope(|scope| {
        let guard = lock.lock().expect("free");
        rayon::join(
            // Not before the other thread has the second half: then this one waits, and steals.
            || has_begun.recv_timeout(SOON).expect("it is stolen"),
            move || {
                scope.spawn(unrelated);
                begun.send(()).expect("the first half listens");
                is_told
                    .recv_timeout(SOON)
                    .expect("the thread that waits runs it");
            },
        );
        drop(guard);
    });
    met.recv().expect("it ran")
}

/// A thread that waits inside of the lock takes up other work, which enters as if it were its own.
#[test]
fn a_job_that_a_waiting_thread_steals_gets_in() {
    let lock = Mutex::new(&client(), "/reentry/stolen").expect("a good path");
    let entered = met_by_a_stolen_job(&lock).expect("no error");
    assert!(entered, "docs/executors.md says that it gets in");
}

#[test]
fn a_stolen_job_is_refused_without_re_entry() {
    let client = client();
    let lock = Mutex::builder(&client, "/reentry/stolen_and_refused").reentrant(false);
    refused(met_by_a_stolen_job(&lock.build().expect("a good path")));
}
