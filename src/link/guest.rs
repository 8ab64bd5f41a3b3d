//! A handle of the `zookeeper` crate behind its door: what is on its way to it, and what it watches.
//!
//! A server keeps one watch for each connection, path and kind. So the handle's watches are
//! [interests](Interest) in the session's own registry: as long as it has one, nobody of ours takes
//! that watch off the server, and it takes off none of ours. What its watch tells goes to the
//! handle in its place among the answers, and to the session as ever.
//!
//! A watch lives through a break: the next connection of the same session leaves it again, by the
//! request that tells of what was missed (`setWatches`). Where that is in vain, and at the end of
//! the session, the handle is told that there is something to look at. So no watch ends in silence.
//! A connection that breaks before the answer may have broken because of it: it is not repeated, or a
//! server that hangs up on it would cost every lock its session.
//!
//! # Locks
//! `outgoing` and `watched` are held for a moment, with nothing taken under them; whoever adds an
//! answer holds the state of the wire meanwhile, because the crate takes the first answer for its
//! first request. The right to send is only tried for. So a handle whose threads hang, or whose
//! program stands still in a debugger, keeps nobody waiting.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use zklock_protocol::{EventKind, SetWatches, WatchKind};

use super::core::frame;
use super::epoch::Epoch;
use super::untaken::Untaken;
use super::wakeup::{Ready, Wakeup};

/// What is kept for a handle that takes nothing. Beyond that it is given up; the crate, which asks
/// nothing more while it takes nothing, does not come so far.
const MOST_UNTAKEN_BYTES: usize = 64 << 20;
/// Of that, for answers as servers give them. Those for which there is no room come without what was
/// read, as lost: each in its turn, because the crate takes the first answer for its first request.
const MOST_ANSWERED_BYTES: usize = MOST_UNTAKEN_BYTES - (1 << 20);
/// Of paths in one request that leaves watches again: so little that a probe need not wait for long
/// behind one, and that any server takes it.
const MOST_PATHS_BYTES: usize = 16 << 10;

/// What the session's registry of watches knows a handle's watch by. Its end ends the interest.
pub(crate) trait Interest: Send + Sync {
    /// The request that leaves the watch was answered, after so many events.
    fn armed(&self, after: u64);
}

/// To be called if a watch may have been taken off on behalf of somebody else.
pub(crate) type TakenOff = Box<dyn Fn() + Send + Sync>;

/// A path, and which of its two watches.
pub(super) type Watching = (WatchKind, String);

/// See the [module](self).
pub(super) struct Guest {
    /// Its session. Its requests go into no other.
    pub(super) epoch: Arc<Epoch>,
    chroot: String,
    stream: TcpStream,
    wakeup: Wakeup,
    /// It did not take all that there was.
    full: AtomicBool,
    gone: AtomicBool,
    outgoing: Mutex<Untaken>,
    sending: Mutex<Sending>,
    watched: Mutex<HashMap<Watching, Watched>>,
}

/// The piece that is being sent.
#[derive(Default)]
struct Sending {
    bytes: Vec<u8>,
    sent: usize,
}

/// What is known of one watch.
#[derive(Default)]
struct Watched {
    /// On the connection of the last request that leaves it.
    interest: Option<Arc<dyn Interest>>,
    /// Requests that leave it and are not answered.
    asked: usize,
    left: Option<Left>,
    /// A connection broke while it was being left again. It is not tried on another one.
    in_vain: bool,
}

/// How a watch was left, and so how it is left again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Data,
    /// By `exists`, where there was no node.
    Missing,
    Children,
}

/// Why a handle is told to look.
#[derive(Clone, Copy)]
enum Told {
    LookAgain,
    SessionExpired,
}

impl Guest {
    pub(super) fn new(epoch: Arc<Epoch>, chroot: String, stream: TcpStream) -> io::Result<Self> {
        if cfg!(not(unix)) {
            // Nothing else ends a read there.
            stream.set_read_timeout(Some(std::time::Duration::from_millis(10)))?;
        }
        Ok(Self {
            epoch,
            chroot,
            stream,
            wakeup: Wakeup::new()?,
            full: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            outgoing: Mutex::default(),
            sending: Mutex::default(),
            watched: Mutex::default(),
        })
    }

    // ---- to the handle ----

    /// To be sent by the next [`flush`](Self::flush), behind what came before.
    pub(super) fn answer(&self, frame: &[u8]) {
        if self.is_gone() {
            return;
        }
        let mut outgoing = self.outgoing.lock();
        let with_it = outgoing.bytes() + frame.len();
        if with_it <= MOST_ANSWERED_BYTES {
            outgoing.add(frame);
            return;
        }
        let bare = frame::without_its_record(frame);
        let frame = bare.as_deref().unwrap_or(frame);
        if outgoing.bytes() + frame.len() <= MOST_UNTAKEN_BYTES {
            outgoing.add(frame);
        } else {
            outgoing.clear();
            self.gone.store(true, Ordering::Release);
        }
    }

    /// Sends what the handle takes now. To be called without the state of the wire; never waits.
    pub(super) fn flush(&self) {
        loop {
            let Some(mut sending) = self.sending.try_lock() else {
                // Its owner looks again after letting go of it.
                return;
            };
            let sent = self.send(&mut sending);
            drop(sending);
            match sent {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.is_gone() => {
                    self.full.store(true, Ordering::Release);
                    self.wakeup.wake();
                    return;
                }
                Err(_) => return self.give_up(),
            }
            if self.is_gone() {
                return self.give_up();
            }
            if self.outgoing.lock().is_empty() {
                return;
            }
        }
    }

    fn send(&self, sending: &mut Sending) -> io::Result<()> {
        loop {
            if sending.sent == sending.bytes.len() {
                sending.sent = 0;
                if !self.outgoing.lock().replace(&mut sending.bytes) {
                    return Ok(());
                }
            }
            match send_now(&self.stream, &sending.bytes[sending.sent..]) {
                Ok(sent) => sending.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Its door finds the end of the stream.
    fn give_up(&self) {
        self.gone.store(true, Ordering::Release);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    // ---- from the handle: for its door alone ----

    /// Waits until there is something to read, and sends meanwhile what the handle takes.
    pub(super) fn wait(&self) -> io::Result<bool> {
        let to_write = self.full.load(Ordering::Acquire);
        let Ready { readable, writable } = self.wakeup.wait(&self.stream, to_write, None)?;
        if writable {
            self.full.store(false, Ordering::Release);
            self.flush();
        }
        Ok(readable)
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    // ---- its watches ----

    /// A request that leaves this watch goes out. Returns what is dropped without locks.
    #[must_use]
    pub(super) fn asks(
        &self,
        watching: &Watching,
        interest: Option<Arc<dyn Interest>>,
    ) -> Option<Arc<dyn Interest>> {
        let mut watched = self.watched.lock();
        let entry = watched.entry(watching.clone()).or_default();
        entry.asked += 1;
        std::mem::replace(&mut entry.interest, interest)
    }

    /// That request was answered, or never will be. Returns the interest: to be armed if the watch
    /// was left, and then dropped. Without locks.
    #[must_use]
    pub(super) fn heard(
        &self,
        watching: &Watching,
        left: Option<Left>,
    ) -> Option<Arc<dyn Interest>> {
        let mut watched = self.watched.lock();
        let entry = watched.get_mut(watching)?;
        entry.asked = entry.asked.saturating_sub(1);
        // Whoever has gone looks at nothing; what was left goes with the interest.
        entry.left = left.or(entry.left).filter(|_| !self.is_gone());
        entry.in_vain &= left.is_none();
        let interest = entry.interest.clone();
        if entry.is_over() {
            watched.remove(watching);
        }
        interest
    }

    /// An event came. The handle is told of it, if it is about a watch of its own. Returns what is
    /// dropped without locks, and not before the session has heard of the event.
    pub(super) fn event(&self, event: EventKind, path: &str) -> Vec<Arc<dyn Interest>> {
        let kinds: &[WatchKind] = match event {
            EventKind::NodeDeleted => &[WatchKind::DATA, WatchKind::CHILDREN],
            EventKind::NodeCreated | EventKind::NodeDataChanged => &[WatchKind::DATA],
            EventKind::NodeChildrenChanged => &[WatchKind::CHILDREN],
        };
        let mut watched = self.watched.lock();
        if watched.is_empty() {
            return Vec::new();
        }
        let mut fired = false;
        let mut over = Vec::new();
        for kind in kinds {
            let watching = (*kind, path.to_owned());
            let Some(entry) = watched.get_mut(&watching) else {
                continue;
            };
            // Not one whose request is still to be answered: the server has answered in order.
            fired |= entry.left.take().is_some();
            if entry.is_over() {
                over.extend(watched.remove(&watching).and_then(|entry| entry.interest));
            }
        }
        drop(watched);
        if fired {
            self.answer(&frame::event(
                event.number(),
                frame::SYNC_CONNECTED,
                self.told(path).as_bytes(),
            ));
        }
        over
    }

    /// The handle does not look at it any more. Returns whether it did, and what is dropped without
    /// locks.
    pub(super) fn stops(&self, watching: &Watching) -> (bool, Option<Arc<dyn Interest>>) {
        let mut watched = self.watched.lock();
        let Some(entry) = watched.get_mut(watching) else {
            return (false, None);
        };
        let looked = entry.left.take().is_some();
        let over = entry.is_over().then(|| watched.remove(watching));
        (looked, over.flatten().and_then(|entry| entry.interest))
    }

    /// A watch is to be left again on another connection. Returns what is dropped without locks.
    #[must_use]
    pub(super) fn renews(
        &self,
        watching: &Watching,
        interest: Option<Arc<dyn Interest>>,
    ) -> Option<Arc<dyn Interest>> {
        match self.watched.lock().get_mut(watching) {
            Some(entry) => std::mem::replace(&mut entry.interest, interest),
            None => interest,
        }
    }

    /// Of these watches, as far as they are there.
    pub(super) fn interests(&self, watches: &[Watching]) -> Vec<Arc<dyn Interest>> {
        let watched = self.watched.lock();
        let entries = watches.iter().filter_map(|one| watched.get(one));
        let left = entries.filter(|entry| entry.left.is_some());
        left.filter_map(|entry| entry.interest.clone()).collect()
    }

    /// What is to be left again on another connection.
    pub(super) fn left(&self) -> Vec<Watching> {
        let watched = self.watched.lock();
        let left = watched.iter().filter(|(_, entry)| entry.left.is_some());
        left.map(|(watching, _)| watching.clone()).collect()
    }

    /// A connection broke while these watches were being left again: perhaps because of that.
    pub(super) fn tried_in_vain(&self, watches: &[Watching]) {
        let mut watched = self.watched.lock();
        for watching in watches {
            if let Some(entry) = watched.get_mut(watching) {
                entry.in_vain = entry.left.is_some();
            }
        }
    }

    /// Of these watches, those that are not to be left again.
    pub(super) fn in_vain(&self, watches: &[Watching]) -> Vec<Watching> {
        let watched = self.watched.lock();
        let in_vain = |one: &&Watching| watched.get(one).is_some_and(|entry| entry.in_vain);
        watches.iter().filter(in_vain).cloned().collect()
    }

    /// The requests that leave the others of these watches again, as far as they are still looked at,
    /// and tell of what has changed since this transaction; each with its watches.
    pub(super) fn leave_again(
        &self,
        watches: &[Watching],
        relative_zxid: i64,
    ) -> Vec<(SetWatches, Vec<Watching>)> {
        let mut requests: Vec<(SetWatches, Vec<Watching>)> = Vec::new();
        let mut bytes = MOST_PATHS_BYTES;
        let watched = self.watched.lock();
        for watching in watches {
            let entry = watched.get(watching).filter(|entry| !entry.in_vain);
            let Some(left) = entry.and_then(|entry| entry.left) else {
                continue;
            };
            let (_, path) = watching;
            bytes += path.len() + 4;
            if bytes > MOST_PATHS_BYTES {
                bytes = path.len() + 4;
                let request = SetWatches {
                    relative_zxid,
                    ..SetWatches::default()
                };
                requests.push((request, Vec::new()));
            }
            let Some((request, of)) = requests.last_mut() else {
                unreachable!("begun with the first");
            };
            match left {
                Left::Data => request.data.push(path.clone()),
                Left::Missing => request.exist.push(path.clone()),
                Left::Children => request.children.push(path.clone()),
            }
            of.push(watching.clone());
        }
        requests
    }

    /// A watch may not be on the server any more. Returns what is dropped without locks.
    #[must_use]
    pub(super) fn look_again(&self, watching: &Watching) -> Option<Arc<dyn Interest>> {
        let (looked, over) = self.stops(watching);
        if looked {
            self.tell_to_look(watching, Told::LookAgain);
        }
        over
    }

    /// The session is over, and with it all watches. Returns what is dropped without locks.
    #[must_use]
    pub(super) fn expire(&self) -> Vec<Arc<dyn Interest>> {
        let left = self.left();
        let mut over = Vec::new();
        for watching in left {
            let (looked, interest) = self.stops(&watching);
            over.extend(interest);
            if looked {
                self.tell_to_look(&watching, Told::SessionExpired);
            }
        }
        over
    }

    /// The handle has gone. Returns what is dropped without locks.
    #[must_use]
    pub(super) fn leave(&self) -> Vec<Arc<dyn Interest>> {
        self.give_up();
        let left = self.left();
        left.iter()
            .filter_map(|watching| self.stops(watching).1)
            .collect()
    }

    /// By an event that the crate hands to the watchers of this kind.
    fn tell_to_look(&self, (kind, path): &Watching, why: Told) {
        let event = match *kind {
            WatchKind::CHILDREN => EventKind::NodeChildrenChanged,
            _ => EventKind::NodeDataChanged,
        };
        let state = match why {
            Told::LookAgain => frame::SYNC_CONNECTED,
            Told::SessionExpired => frame::EXPIRED,
        };
        self.answer(&frame::event(
            event.number(),
            state,
            self.told(path).as_bytes(),
        ));
    }

    /// The crate cuts the chroot off, and takes what is left for the path.
    fn told(&self, path: &str) -> String {
        if !self.chroot.is_empty() && path == self.chroot {
            return format!("{path}/");
        }
        path.to_owned()
    }
}

impl Watched {
    fn is_over(&self) -> bool {
        self.asked == 0 && self.left.is_none()
    }
}

#[cfg(unix)]
fn send_now(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    use rustix::net::{SendFlags, send};
    #[cfg(not(target_vendor = "apple"))]
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    #[cfg(target_vendor = "apple")]
    let flags = SendFlags::DONTWAIT;
    Ok(send(stream, bytes, flags)?)
}

#[cfg(not(unix))]
fn send_now(mut stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    use std::io::Write;
    stream.write(bytes)
}
