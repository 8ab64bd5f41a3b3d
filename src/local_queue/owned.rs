//! A queue, as a lock and its guards have it.

use std::ops::Deref;
use std::sync::Arc;

/// Something to be kept alive.
pub(crate) type Keeps = Box<dyn std::any::Any + Send + Sync>;

/// A queue, and what must stay as long as the lock or any guard of it does: the client's handle.
///
/// The threads of the client have a queue for a moment, to tell it of an event or a time. What they
/// upgrade is the queue, and never this: with the last handle of a client its session ends, and that
/// end waits for those very threads, one of which is to say good-bye.
pub(crate) struct Owned<Q> {
    // In this order: an idle tenure ends before the session may.
    queue: Arc<Q>,
    _keeps: Keeps,
}

impl<Q> Owned<Q> {
    pub(crate) fn new(queue: Arc<Q>, keeps: Keeps) -> Arc<Self> {
        Arc::new(Self {
            queue,
            _keeps: keeps,
        })
    }
}

impl<Q> Deref for Owned<Q> {
    type Target = Q;

    #[inline]
    fn deref(&self) -> &Q {
        &self.queue
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::Weak;
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    use crossbeam_channel::{Sender, bounded};

    use super::*;
    use crate::global_queue::{GlobalQueue, WaitStrategy};
    use crate::local_queue::{LocalQueue, Policy, SharedQueue};
    use crate::session::{RetryPolicy, Session, Site};
    use crate::znode::names::{Class, Dialect, Grammar};
    use crate::znode::path::LockPath;

    const SOON: Duration = Duration::from_secs(30);

    /// Says on which thread it goes.
    struct Client(Sender<ThreadId>);

    impl Drop for Client {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id());
        }
    }

    /// The client went with the queue, on the thread that had that for a moment to tell it of an
    /// event; and the client's end then waited for that very thread, which was to say good-bye.
    #[test]
    fn the_client_goes_with_the_users_last_handle_while_a_thread_of_it_has_the_queue() {
        let session = Session::new(
            "nowhere".into(),
            RetryPolicy::new(),
            Vec::new(),
            Site::open(),
        );
        let protocol = |class| {
            let folder = LockPath::parse("/lock").expect("good");
            let grammar = Grammar::rw(Dialect::Curator);
            let strategy = WaitStrategy::PredecessorWatch;
            GlobalQueue::new(&session, folder, grammar, class, strategy, false)
        };
        let alone = LocalQueue::new(protocol(Class::Write), Policy::default());
        let weak = Arc::downgrade(&alone);
        check(&session, |client| Owned::new(alone, client), &weak);
        let shared = SharedQueue::new(protocol(Class::Read), Policy::default());
        let weak = Arc::downgrade(&shared);
        check(&session, |client| Owned::new(shared, client), &weak);
    }

    fn check<Q: Send + Sync + 'static, H>(
        session: &Session,
        own: impl FnOnce(Keeps) -> H,
        queue: &Weak<Q>,
    ) {
        let (tell, gone) = bounded(1);
        let lock = own(Box::new(Client(tell)));
        let (entered, begun) = bounded(1);
        let (release, stuck) = bounded::<()>(0);
        let weak = queue.clone();
        session.submit(move || {
            let upgraded = weak.upgrade();
            let _ = entered.send(upgraded.is_some());
            let _ = stuck.recv();
        });
        assert_eq!(begun.recv_timeout(SOON), Ok(true));
        drop(lock);
        let went_on = gone.try_recv();
        drop(release);
        assert_eq!(went_on, Ok(thread::current().id()));
    }
}
