//! The one plain node: no queue, and a name that is everybody's. The servers in memory see to it
//! that nobody deletes another session's node.

use std::sync::Arc;

use super::mutex::{Process, crowd, end};
use super::{BROKEN_CONNECTIONS, Chaos, FOLDER, LOST_SESSION, PEACE, REFUSALS, SCHEDULES, explore};
use crate::global_queue::SingleNode;
use crate::local_queue::{LocalQueue, Policy, Turns};
use crate::session::Session;
use crate::session::memory::Ensemble;
use crate::wait::limits::WaitLimits;
use crate::znode::path::LockPath;

pub(super) fn by_single_node(session: &Arc<Session>, policy: &Policy) -> Arc<LocalQueue> {
    let path = LockPath::parse(FOLDER).expect("good");
    LocalQueue::new(SingleNode::new(session, path), policy.clone())
}

fn model_crowd(chaos: Chaos) {
    let policy = Policy {
        hand_off: false,
        ..Policy::default()
    };
    explore(SCHEDULES, crowd(by_single_node, policy, chaos));
}

#[test]
fn model_of_a_single_node_in_peace() {
    model_crowd(PEACE);
}

#[test]
fn model_of_a_single_node_and_a_lost_session() {
    model_crowd(LOST_SESSION);
}

/// A release once saw in one session that the node was its own, and deleted in the next, where the
/// node was another's by then. A check and the deletion that rests on it are about one connection.
#[test]
fn model_of_a_release_while_its_session_is_lost() {
    let policy = Policy {
        hand_off: false,
        ..Policy::default()
    };
    explore(3 * SCHEDULES, move || {
        let ensemble = Ensemble::new();
        let processes = [(), ()].map(|()| Process::start(&ensemble, &policy, by_single_node));
        let [first, second] = &processes;
        first.lock(&WaitLimits::none()).expect("free");
        let waiter = {
            let second = Arc::clone(second);
            shuttle::thread::spawn(move || {
                second.lock(&WaitLimits::none()).expect("its turn");
                shuttle::thread::yield_now();
                shuttle::thread::yield_now();
                second.queue.release().expect("nothing breaks here");
            })
        };
        let victim = Arc::clone(&first.line);
        let expiry = shuttle::thread::spawn(move || victim.expire());
        let _ = first.queue.release();
        waiter.join().expect("no panic");
        expiry.join().expect("no panic");
        end(&ensemble, &processes);
    });
}

/// A deletion whose answer was lost may be done later, while its client goes on by another server.
/// Whoever looks for its node again makes a write first; else it could see the node, have the old
/// deletion done and another's node made after that, and delete that one.
#[test]
fn model_of_a_single_node_and_broken_connections() {
    model_crowd(BROKEN_CONNECTIONS);
}

#[test]
fn model_of_a_single_node_and_refusals_for_now() {
    model_crowd(REFUSALS);
}
