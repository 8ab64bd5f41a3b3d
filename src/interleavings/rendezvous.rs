//! The rendezvous: two members who go in together and out together, again and again.

use std::sync::Arc;

use shuttle::rand::{Rng, thread_rng};

use super::{BROKEN_CONNECTIONS, Chaos, FOLDER, PEACE, REFUSALS, SCHEDULES, explore, settle};
use crate::global_queue::{AcquireRequest, Rendezvous};
use crate::session::memory::{Ensemble, Line};
use crate::session::{Session, Waiter};
use crate::sync::Mutex;
use crate::wait::limits::{WaitLimits, deadline_after};
use crate::znode::names::{Dialect, Grammar};
use crate::znode::path::LockPath;

const MEMBERS: usize = 2;
const ROUNDS: usize = 2;

/// How often a member has begun to enter, and to leave, over all members.
#[derive(Clone, Copy, Default)]
struct Begun {
    to_enter: usize,
    to_leave: usize,
}

/// One process, with one member at a time.
struct Process {
    session: Arc<Session>,
    line: Arc<Line>,
    rendezvous: Arc<Rendezvous>,
}

impl Process {
    fn start(ensemble: &Arc<Ensemble>, dialect: Dialect) -> Arc<Self> {
        let (session, line) = ensemble.connect();
        let path = LockPath::parse(FOLDER).expect("good");
        let grammar = Grammar::member(dialect);
        let rendezvous = Rendezvous::new(&session, path, grammar, MEMBERS);
        Arc::new(Self {
            rendezvous: Arc::new(rendezvous),
            session,
            line,
        })
    }

    /// Takes part in one round after the other. Sometimes it has no time to see the others leave.
    fn take_part(&self, begun: &Mutex<Begun>) {
        for round in 1..=ROUNDS {
            begun.lock().to_enter += 1;
            let unbounded = WaitLimits::none();
            let waiter = Waiter::new(&self.session, &unbounded);
            let request = AcquireRequest::plain(Arc::from([]));
            let entered = self.rendezvous.meet(&waiter, &request);
            let mut member = entered.expect("all come, and no session is lost");
            let seen = *begun.lock();
            assert!(seen.to_enter >= round * MEMBERS, "in before all were there");
            assert!(
                seen.to_leave >= (round - 1) * MEMBERS,
                "in before the round before was over"
            );
            shuttle::thread::yield_now();
            begun.lock().to_leave += 1;
            let limits = if thread_rng().gen_bool(0.2) {
                WaitLimits::until(deadline_after(std::time::Duration::from_secs(1)))
            } else {
                WaitLimits::none()
            };
            let waiter = Waiter::new(&self.session, &limits);
            match self.rendezvous.part(&mut member, &waiter) {
                Ok(()) => {
                    let seen = *begun.lock();
                    assert!(seen.to_leave >= round * MEMBERS, "out before all had left");
                }
                Err(error) => {
                    assert!(error.is_timeout() && !limits.is_none(), "{error}");
                    self.rendezvous.abandon(member);
                }
            }
        }
    }
}

fn model_of_rounds(dialect: Dialect, chaos: Chaos) {
    explore(SCHEDULES, move || {
        let ensemble = Ensemble::new();
        let begun = Arc::new(Mutex::new(Begun::default()));
        let processes = [(), ()].map(|()| Process::start(&ensemble, dialect));
        let mut threads: Vec<_> = processes
            .iter()
            .map(|process| {
                let (process, begun) = (Arc::clone(process), Arc::clone(&begun));
                shuttle::thread::spawn(move || process.take_part(&begun))
            })
            .collect();
        let (ensemble_, victim) = (Arc::clone(&ensemble), Arc::clone(&processes[0].line));
        threads.push(shuttle::thread::spawn(move || {
            for _ in 0..thread_rng().gen_range(0..40) {
                shuttle::thread::yield_now();
            }
            chaos(&ensemble_, &victim);
        }));
        for thread in threads {
            thread.join().expect("no panic");
        }
        let sessions = processes.each_ref().map(|process| &process.session);
        settle(&ensemble, &sessions);
    });
}

#[test]
fn model_of_a_rendezvous_in_peace() {
    model_of_rounds(Dialect::Curator, PEACE);
}

/// In this dialect `ready` once went while a member of ours, first by name, had not seen it yet.
#[test]
fn model_of_a_rendezvous_in_kazoos_dialect() {
    model_of_rounds(Dialect::Kazoo, PEACE);
}

/// A delete that is lost with its connection must be made good before `ready` goes: whoever came
/// early for the next round would count the node that is still there, and go in alone.
#[test]
fn model_of_a_rendezvous_and_broken_connections() {
    model_of_rounds(Dialect::Curator, BROKEN_CONNECTIONS);
    model_of_rounds(Dialect::Kazoo, BROKEN_CONNECTIONS);
}

/// Nothing is left and nobody waits for ever, whatever is refused for now. (That what one look has shown of
/// `ready` counts, though the list beside it was refused, takes a rarer schedule than these: it is guarded on
/// a real server.)
#[test]
fn model_of_a_rendezvous_and_refusals_for_now() {
    model_of_rounds(Dialect::Curator, REFUSALS);
    model_of_rounds(Dialect::Kazoo, REFUSALS);
}
