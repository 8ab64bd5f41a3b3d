//! The take-over: a waiter that was second holds when the first one's deletion is what it hears
//! first. What its proof rests on is the silence of the watch on the folder.

use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use zklock_protocol::WatchKind;

use super::readers::{Process, end};
use super::{Chaos, FOLDER, Inside, PEACE, REFUSALS, Right, SCHEDULES, explore, until};
use crate::local_queue::{Policy, Turns};
use crate::session::Watch;
use crate::session::memory::Ensemble;
use crate::wait::limits::{WaitLimits, deadline_after};

/// One writer of a process waits second behind a writer of another, and times out; the next goes on
/// from its place. Meanwhile the first one becomes a reader: a reader's node comes, and the writer's
/// goes. The removal of the timed-out one's watch from the server once took the next one's off: it
/// heard that the writer had gone, and not that the reader had come before, and both were in. And an
/// event that is overtaken by an answer, or overtakes one, belongs where the server sent it.
#[test]
fn model_of_a_take_over_and_a_downgrade() {
    take_over_and_downgrade(3 * SCHEDULES, PEACE);
}

/// The same, with servers that refuse for now what either of them asks.
#[test]
fn model_of_a_take_over_and_refusals_for_now() {
    take_over_and_downgrade(SCHEDULES, REFUSALS);
}

fn take_over_and_downgrade(schedules: usize, chaos: Chaos) {
    // So that the first list of a writer leaves a watch on the folder.
    let curious = Policy {
        linger: Duration::MAX,
        ..Policy::default()
    };
    explore(schedules, move || {
        let ensemble = Ensemble::new();
        let inside = Arc::new(Inside::default());
        let processes = [Policy::default(), curious.clone()]
            .map(|policy| Process::start_with(&ensemble, &policy));
        let [first, second] = &processes;
        let held = first.writers.acquire(&WaitLimits::none(), Process::data);
        held.expect("free");
        let timed = WaitLimits::until(deadline_after(Duration::from_secs(1)));
        let threads = [timed, WaitLimits::none()].map(|limits| {
            let (process, inside) = (Arc::clone(second), Arc::clone(&inside));
            shuttle::thread::spawn(
                move || match process.writers.acquire(&limits, Process::data) {
                    Ok(()) => {
                        let tenure = process.writers.tenure();
                        inside.enter(&tenure, Right::Alone);
                        shuttle::thread::yield_now();
                        inside.leave(&tenure);
                        let _ = process.writers.release();
                    }
                    Err(error) => assert!(error.is_timeout(), "{error}"),
                },
            )
        });
        let (ensemble_, lines) = (
            Arc::clone(&ensemble),
            [first, second].map(|one| Arc::clone(&one.line)),
        );
        let trouble = shuttle::thread::spawn(move || {
            let line = usize::from(thread_rng().gen_bool(0.5));
            chaos(&ensemble_, &lines[line]);
        });
        shuttle::thread::yield_now();
        become_reader(first, &inside);
        for thread in threads {
            thread.join().expect("no panic");
        }
        trouble.join().expect("no panic");
        let _ = second.writers.end_idle();
        end(&ensemble, &processes);
    });
}

fn write(process: &Process, limits: &WaitLimits, inside: &Inside) {
    match process.writers.acquire(limits, Process::data) {
        Ok(()) => {
            let tenure = process.writers.tenure();
            inside.enter(&tenure, Right::Alone);
            shuttle::thread::yield_now();
            inside.leave(&tenure);
            let _ = process.writers.release();
        }
        Err(error) => assert!(error.is_timeout(), "{error}"),
    }
}

fn become_reader(first: &Process, inside: &Inside) {
    let writing = first.writers.tenure();
    let data = Process::data();
    let read = first
        .readers
        .acquire_under(&writing, &WaitLimits::none(), &data);
    read.expect("a writer may read");
    let reading = first.readers.tenure();
    inside.enter(&reading, Right::Shared);
    let _ = first.writers.release();
    shuttle::thread::yield_now();
    shuttle::thread::yield_now();
    inside.leave(&reading);
    let _ = first.readers.release();
}

/// As above, but who gives up is another lock object of the waiting writer's process, so it may
/// be slow: its watch is off the registry, the writer's comes, and only then the removal is sent.
/// Until that is answered, the silence of the writer's watch says nothing.
#[test]
fn model_of_a_take_over_and_a_slow_removal() {
    let curious = Policy {
        linger: Duration::MAX,
        ..Policy::default()
    };
    explore(SCHEDULES, move || {
        let ensemble = Ensemble::new();
        let inside = Arc::new(Inside::default());
        let processes = [Policy::default(), curious.clone()]
            .map(|policy| Process::start_with(&ensemble, &policy));
        let [first, second] = &processes;
        second.line.dawdle();
        let held = first.writers.acquire(&WaitLimits::none(), Process::data);
        held.expect("free");
        let onlooker = {
            let session = Arc::clone(&second.session);
            shuttle::thread::spawn(move || {
                let contact = session.contact().expect("nothing breaks here");
                let watch = Watch::new(&contact, FOLDER, WatchKind::CHILDREN, None);
                contact.watch_children(&watch).expect("it stands");
            })
        };
        let writer = {
            let (second, inside) = (Arc::clone(second), Arc::clone(&inside));
            shuttle::thread::spawn(move || write(&second, &WaitLimits::none(), &inside))
        };
        let ahead = first.writers.tenure().node().to_owned();
        until(&ensemble, || second.line.watches(WatchKind::DATA, &ahead));
        become_reader(first, &inside);
        writer.join().expect("no panic");
        onlooker.join().expect("no panic");
        let _ = second.writers.end_idle();
        end(&ensemble, &processes);
    });
}
