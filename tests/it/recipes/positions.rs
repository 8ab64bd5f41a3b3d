//! How many are ahead.

use zklock::AcquireOptions;

use crate::fixtures::{SOON, client, mutex, server, wait_for_children};

#[test]
fn a_waiter_is_told_how_many_are_ahead() {
    let path = "/positions/mutex";
    let clients = [client(), client(), client()];
    let locks: Vec<_> = clients.iter().map(|c| mutex(c, path)).collect();
    let guard = locks[0].lock().expect("free");
    std::thread::scope(|scope| {
        // The second holds until the last has been told: else both changes may have happened by the time at which
        // it looks, and there is no place left to tell of.
        let (let_go, may_go) = crossbeam_channel::bounded::<()>(0);
        let next_lock = &locks[1];
        let second = scope.spawn(move || {
            let guard = next_lock.lock().expect("its turn");
            let _ = may_go.recv();
            drop(guard);
        });
        wait_for_children(server(), path, 2);
        let (to, positions) = crossbeam_channel::unbounded();
        let options = AcquireOptions::new().positions(&to);
        let last = scope.spawn(|| drop(locks[2].lock_with(options).expect("its turn")));
        let first = positions.recv_timeout(SOON).expect("told when it queues");
        assert_eq!((first.ahead(), first.contenders_ahead()), (2, 2));
        // A thread behind it in its own process counts that one.
        let (to_local, local) = crossbeam_channel::unbounded();
        let options = AcquireOptions::new().positions(&to_local);
        let behind = scope.spawn(|| drop(locks[2].lock_with(options).expect("its turn")));
        let position = local.recv_timeout(SOON).expect("told when it queues");
        assert_eq!((position.ahead(), position.threads_ahead()), (1, 1));
        drop(guard);
        let next = positions.recv_timeout(SOON).expect("told of the change");
        assert_eq!(next.ahead(), 1);
        drop(let_go);
        second.join().expect("no panic");
        last.join().expect("no panic");
        behind.join().expect("no panic");
        assert!(positions.try_recv().is_err(), "nothing twice");
    });
}
