//! The registry of watches alone, against servers in memory: threads that leave watches, wait for
//! them, lose patience and go, while what they look at changes and connections break.
//!
//! What must hold: whoever waits for a change hears of it; a watch that is said to be on the server
//! is there; its silence says that nothing has changed; and none is left when nobody looks any more.

use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};

use zklock_protocol::WatchKind;

use super::{BROKEN_CONNECTIONS, Chaos, LOST_SESSION, PEACE, SCHEDULES, explore, settle, until};
use crate::session::memory::{Ensemble, Line};
use crate::session::{Contact, Session, Step, Waiter, Wake, Watch};
use crate::sync::Mutex;
use crate::wait::limits::{WaitLimits, deadline_after};

/// Its data are replaced, and children come and go.
const NODE: &str = "/node";
/// Comes and goes.
const CHILD: &str = "/node/child";

/// How often everything changes.
const CHANGES: i32 = 3;

/// What a look sees, as a number that each change makes larger.
#[derive(Clone, Copy)]
enum View {
    Data,
    Children,
    /// Of a node that may be missing.
    Child,
}

impl View {
    fn any() -> Self {
        let views = [Self::Data, Self::Children, Self::Child];
        views[thread_rng().gen_range(0..views.len())]
    }

    fn on(self) -> (&'static str, WatchKind) {
        match self {
            Self::Data => (NODE, WatchKind::DATA),
            Self::Children => (NODE, WatchKind::CHILDREN),
            Self::Child => (CHILD, WatchKind::DATA),
        }
    }

    /// Leaves `watch` with a look.
    fn look(self, contact: &Contact<'_>, watch: &Watch) -> Step<Seen> {
        Ok(match self {
            Self::Data => Seen::Data(contact.watch_data(watch)?.0),
            Self::Children => Seen::Children(contact.watch_children(watch)?.len()),
            Self::Child => Seen::Child(contact.watch_stat(watch)?.map(|stat| stat.czxid)),
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    Data(Vec<u8>),
    Children(usize),
    Child(Option<i64>),
}

struct Kept {
    view: View,
    seen: Seen,
    watch: Watch,
}

#[derive(Clone)]
struct Onlookers {
    session: Arc<Session>,
    line: Arc<Line>,
    kept: Arc<Mutex<Vec<Kept>>>,
    /// No connection breaks.
    in_peace: bool,
}

impl Onlookers {
    /// Looks, and perhaps keeps the watch; or loses patience before the answer.
    fn look(&self) {
        let limits = match thread_rng().gen_bool(0.5) {
            true => WaitLimits::until(deadline_after(Duration::from_secs(1))),
            false => WaitLimits::none(),
        };
        let waiter = Waiter::new(&self.session, &limits);
        let Ok(contact) = waiter.contact_now() else {
            return;
        };
        let view = View::any();
        let (path, kind) = view.on();
        let watch = Watch::new(&contact, path, kind, None);
        let seen = view.look(&contact, &watch);
        // Taken off, or fired and told: by either it must be known to be disturbed. (A break is
        // known to the servers first.)
        if self.in_peace && !self.line.watches(kind, path) && self.line.has_heard_all() {
            assert!(!watch.is_undisturbed(), "{path} is watched by nobody");
        }
        if let Ok(seen) = seen
            && thread_rng().gen_bool(0.5)
        {
            self.kept.lock().push(Kept { view, seen, watch });
        }
    }

    /// Waits until the data are the last that will be.
    fn follow(&self) {
        let limits = WaitLimits::none();
        let waiter = Waiter::new(&self.session, &limits);
        let mut watching = None;
        let last = waiter.retry(NODE, |contact| {
            let wake = Wake::Signal(Arc::clone(contact.signal()));
            let watch = Watch::new(contact, NODE, WatchKind::DATA, Some(wake));
            let watch = watching.insert(watch);
            let (data, _) = contact.watch_data(watch)?;
            if data == CHANGES.to_be_bytes() {
                return Ok(Some(()));
            }
            contact.sleep_until_any(&[watch])?;
            Ok(None)
        });
        last.expect("it stands");
    }

    /// Nothing is on its way any more.
    fn check_kept(&self) {
        let limits = WaitLimits::none();
        let waiter = Waiter::new(&self.session, &limits);
        let contact = waiter.contact(0).expect("it stands");
        let kept = std::mem::take(&mut *self.kept.lock());
        for Kept { view, seen, watch } in &kept {
            if !watch.is_sure(&contact) || watch.state().has_fired() {
                continue;
            }
            let (path, kind) = view.on();
            assert!(
                self.line.watches(kind, path),
                "taken off under one who relies on it: {path}"
            );
            let now = match view {
                View::Data => contact.data(path).map(|(data, _)| Seen::Data(data)),
                View::Children => contact.children(path).map(|all| Seen::Children(all.len())),
                View::Child => contact
                    .stat(path)
                    .map(|stat| Seen::Child(stat.map(|stat| stat.czxid))),
            };
            assert_eq!(
                *seen,
                now.expect("nothing breaks now"),
                "a change of {path} was not told"
            );
        }
    }
}

fn change(ensemble: &Ensemble) {
    for number in 1..=CHANGES {
        ensemble.write(NODE, &number.to_be_bytes());
        if !ensemble.remove(CHILD) {
            ensemble.write(CHILD, &[]);
        }
        shuttle::thread::yield_now();
    }
}

fn crowd(chaos: Chaos, in_peace: bool) -> impl Fn() + Send + Sync + Clone {
    move || {
        let ensemble = Ensemble::new();
        ensemble.write(NODE, &[]);
        let (session, line) = ensemble.connect();
        let onlookers = Onlookers {
            session,
            line,
            kept: Arc::default(),
            in_peace,
        };
        let mut threads = Vec::new();
        for patient in [true, false, false] {
            let onlookers = onlookers.clone();
            threads.push(shuttle::thread::spawn(move || {
                if patient {
                    onlookers.follow();
                } else {
                    for _ in 0..3 {
                        onlookers.look();
                    }
                }
            }));
        }
        let (ensemble_, line) = (Arc::clone(&ensemble), Arc::clone(&onlookers.line));
        threads.push(shuttle::thread::spawn(move || chaos(&ensemble_, &line)));
        change(&ensemble);
        for thread in threads {
            thread.join().expect("no panic");
        }
        until(&ensemble, || onlookers.line.is_quiet());
        onlookers.check_kept();
        settle(&ensemble, &[&onlookers.session]);
    }
}

#[test]
fn model_of_watches_in_peace() {
    explore(SCHEDULES, crowd(PEACE, true));
}

#[test]
fn model_of_watches_and_a_lost_session() {
    explore(SCHEDULES, crowd(LOST_SESSION, false));
}

#[test]
fn model_of_watches_and_broken_connections() {
    explore(SCHEDULES, crowd(BROKEN_CONNECTIONS, false));
}
