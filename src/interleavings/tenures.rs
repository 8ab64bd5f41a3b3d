//! What a holder is told while it holds: that it goes on holding after a break, and that somebody
//! asks for the lock.

use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};

use super::mutex::{Make, Process, by_queue, end};
use super::readers;
use super::single_node::by_single_node;
use super::{BROKEN_CONNECTIONS, REFUSALS, SCHEDULES, explore, policies, until};
use crate::local_queue::{Policy, Turns};
use crate::session::memory::Ensemble;
use crate::tenure::LockState;
use crate::wait::limits::WaitLimits;

/// A holder whose lock is not lost is sure of it again in the end, after any number of breaks of
/// the connection. Two who looked at its node, after one break and after the next, once told of it
/// in the wrong order, and the older word stood until the next reconnect.
#[test]
fn model_of_a_surviving_holder() {
    explore(4 * SCHEDULES, || {
        let ensemble = Ensemble::new();
        let process = Process::start(&ensemble, &Policy::default(), by_queue);
        process.lock(&WaitLimits::none()).expect("free");
        let tenure = process.queue.tenure();
        break_often(&ensemble, &process);
        until(&ensemble, || {
            let state = tenure.state();
            assert_ne!(state, LockState::Lost, "the session stood all the time");
            state == LockState::Held
        });
        let _ = process.queue.release();
        end(&ensemble, &[process]);
    });
}

fn break_often(ensemble: &Ensemble, process: &Process) {
    for _ in 0..thread_rng().gen_range(1..4) {
        BROKEN_CONNECTIONS(ensemble, &process.line);
        // What looks again after the break may be refused for now.
        if thread_rng().gen_bool(0.3) {
            REFUSALS(ensemble, &process.line);
        }
        shuttle::thread::yield_now();
    }
}

/// A holder hears that somebody asks for its lock, whatever breaks meanwhile or broke before.
fn model_of_a_revocation(make: Make) {
    let policy = Policy {
        revocable: true,
        hand_off: false,
        ..Policy::default()
    };
    explore(4 * SCHEDULES, move || {
        let ensemble = Ensemble::new();
        let process = Process::start(&ensemble, &policy, make);
        let other = Process::start(&ensemble, &policy, make);
        process.lock(&WaitLimits::none()).expect("free");
        let tenure = process.queue.tenure();
        let node = tenure.node().to_owned();
        let breaker = {
            let (ensemble, process) = (Arc::clone(&ensemble), Arc::clone(&process));
            shuttle::thread::spawn(move || break_often(&ensemble, &process))
        };
        let mut breaker = Some(breaker);
        if thread_rng().gen_bool(0.7) {
            // All that breaks has broken before.
            let breaker = breaker.take().expect("not taken yet");
            breaker.join().expect("no panic");
            until(&ensemble, || tenure.is_held());
        }
        assert!(other.queue.revoke(&node).expect("nothing breaks here"));
        until(&ensemble, || tenure.is_revocation_requested());
        if let Some(breaker) = breaker {
            breaker.join().expect("no panic");
        }
        let _ = process.queue.release();
        end(&ensemble, &[process, other]);
    });
}

#[test]
fn model_of_a_revoked_queue() {
    model_of_a_revocation(by_queue);
}

#[test]
fn model_of_a_revoked_single_node() {
    model_of_a_revocation(by_single_node);
}

/// A tenure that is kept with nobody inside ends when it is asked for, though no thread comes and
/// no time is over.
#[test]
fn model_of_a_revoked_idle_tenure() {
    let policy = Policy {
        revocable: true,
        linger: Duration::MAX,
        ..Policy::default()
    };
    explore(SCHEDULES, move || {
        let ensemble = Ensemble::new();
        let process = Process::start(&ensemble, &policy, by_queue);
        let other = Process::start(&ensemble, &policy, by_queue);
        process.lock(&WaitLimits::none()).expect("free");
        let node = process.queue.tenure().node().to_owned();
        let asker = {
            let other = Arc::clone(&other);
            shuttle::thread::spawn(move || other.queue.revoke(&node).expect("nothing breaks"))
        };
        let _ = process.queue.release();
        let stood = asker.join().expect("no panic");
        assert!(stood, "nothing else ends it");
        until(&ensemble, || ensemble.ephemeral_nodes().is_empty());
        // Nobody is told to end what is idle.
        super::settle(&ensemble, &[&process.session, &other.session]);
    });
}

/// Where an unlock asks nothing of ZooKeeper, as the tenure is kept or held again, the clock is all
/// that knows of a loss: a section in which somebody else may have been was once reported as good.
#[test]
fn model_of_an_unlock_when_the_lease_is_over() {
    for policy in policies() {
        explore(SCHEDULES / 9, move || {
            let ensemble = Ensemble::new();
            let process = Process::start(&ensemble, &policy, by_queue);
            process.lock(&WaitLimits::none()).expect("free");
            process.lock(&WaitLimits::none()).expect("again");
            // It is over, and nobody has looked at the clock.
            process.queue.tenure().epoch().lease().seal();
            for which in ["inner", "outer"] {
                let error = process.queue.unlock().expect_err(which);
                assert!(error.is_lock_lost(), "{which}: {error}");
            }
            process.line.expire();
            end(&ensemble, &[process]);
        });
    }
}

/// The same of readers, of whom only the last one's release asks anything.
#[test]
fn model_of_a_readers_unlock_when_the_lease_is_over() {
    explore(SCHEDULES / 9, || {
        let ensemble = Ensemble::new();
        let process = readers::Process::start_with(&ensemble, &Policy::default());
        let read = || {
            process
                .readers
                .acquire(&WaitLimits::none(), readers::Process::data)
        };
        read().expect("free");
        read().expect("again");
        process.readers.tenure().epoch().lease().seal();
        for which in ["inner", "outer"] {
            let error = process.readers.unlock().expect_err(which);
            assert!(error.is_lock_lost(), "{which}: {error}");
        }
        process.line.expire();
        readers::end(&ensemble, &[process]);
    });
}
