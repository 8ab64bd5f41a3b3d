//! Handles of the `zookeeper` crate: what is on its way to each, and what it watches.
//!
//! A server keeps one watch for each connection, path and kind. So a handle's watches are
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
//! What is returned of interests is to be dropped without locks: the end of the last one takes the
//! watch off the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use zklock_protocol::{EventKind, SetWatches, WatchKind};

use super::frame::{self, RequestHeader};
use super::untaken::Untaken;

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

/// A path, and which of its two watches.
pub(in crate::link) type Watching = (WatchKind, String);

/// Counts the handles of one link, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::link) struct HandleId(u64);

/// All handles of one link.
pub(super) struct Handles {
    chroot: String,
    all: BTreeMap<HandleId, Handle>,
    last: u64,
}

struct Handle {
    /// Its session. Its requests go into no other.
    session: u64,
    outgoing: Untaken,
    /// Nothing is kept for it any more: it is to be hung up, or was.
    gone: bool,
    /// Its door has gone, too, and asks nothing more. Not before is it forgotten: a door that does not
    /// know yet that it is given up would have it forward what nobody hears the answer to.
    left: bool,
    watched: BTreeMap<Watching, Watched>,
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

impl Handles {
    pub(super) fn new(chroot: String) -> Self {
        Self {
            chroot,
            all: BTreeMap::new(),
            last: 0,
        }
    }

    /// A handle comes in, on this session.
    pub(super) fn enter(&mut self, session: u64) -> HandleId {
        self.last += 1;
        let id = HandleId(self.last);
        let handle = Handle {
            session,
            outgoing: Untaken::default(),
            gone: false,
            left: false,
            watched: BTreeMap::new(),
        };
        self.all.insert(id, handle);
        id
    }

    /// The handle has gone. It is forgotten when all its requests that leave watches are answered.
    #[must_use]
    pub(super) fn leave(&mut self, id: HandleId) -> Vec<Arc<dyn Interest>> {
        self.give_up(id);
        if let Some(handle) = self.all.get_mut(&id) {
            handle.left = true;
        }
        let mut over = Vec::new();
        for watching in self.left(id) {
            over.extend(self.stops(id, &watching).1);
        }
        self.forget_if_over(id);
        over
    }

    fn forget_if_over(&mut self, id: HandleId) {
        let handle = self.all.get(&id);
        if handle.is_some_and(|handle| handle.left && handle.watched.is_empty()) {
            self.all.remove(&id);
        }
    }

    // ---- what goes to a handle ----

    /// To be taken by the next [`take`](Self::take), behind what came before.
    pub(super) fn answer(&mut self, id: HandleId, frame: &[u8]) {
        if let Some(handle) = self.all.get_mut(&id) {
            handle.answer(frame);
        }
    }

    /// Puts the next of what is to be sent to it in the place of what was, or nothing. Returns whether
    /// the handle is still there: one that has taken too little is not.
    pub(super) fn take(&mut self, id: HandleId, sent: &mut Vec<u8>) -> bool {
        let Some(handle) = self.all.get_mut(&id).filter(|handle| !handle.gone) else {
            sent.clear();
            return false;
        };
        handle.outgoing.replace(sent);
        true
    }

    pub(super) fn has(&self, id: HandleId) -> bool {
        self.all.get(&id).is_some_and(|handle| !handle.gone)
    }

    /// Nothing more is kept for it.
    pub(super) fn give_up(&mut self, id: HandleId) {
        if let Some(handle) = self.all.get_mut(&id) {
            handle.gone = true;
            handle.outgoing.clear();
        }
    }

    /// Those for which there is something, or that were given up.
    pub(super) fn with_news(&self) -> impl Iterator<Item = HandleId> + '_ {
        let news = |handle: &Handle| handle.gone || !handle.outgoing.is_empty();
        let all = self.all.iter().filter(move |(_, handle)| news(handle));
        all.map(|(id, _)| *id)
    }

    // ---- watches ----

    /// The handles of this session.
    pub(super) fn of_session(&self, session: u64) -> Vec<HandleId> {
        let of_it = self.all.iter().filter(|(_, one)| one.session == session);
        of_it.map(|(id, _)| *id).collect()
    }

    /// A request that leaves this watch goes out. Returns the interest before.
    #[must_use]
    pub(super) fn asks(
        &mut self,
        id: HandleId,
        watching: &Watching,
        interest: Option<Arc<dyn Interest>>,
    ) -> Option<Arc<dyn Interest>> {
        let Some(handle) = self.all.get_mut(&id) else {
            return interest;
        };
        let entry = handle.watched.entry(watching.clone()).or_default();
        entry.asked += 1;
        std::mem::replace(&mut entry.interest, interest)
    }

    /// That request was answered, or never will be. Returns the interest: to be armed if the watch
    /// was left, and then dropped.
    #[must_use]
    pub(super) fn heard(
        &mut self,
        id: HandleId,
        watching: &Watching,
        left: Option<Left>,
    ) -> Option<Arc<dyn Interest>> {
        let handle = self.all.get_mut(&id)?;
        let entry = handle.watched.get_mut(watching)?;
        entry.asked = entry.asked.saturating_sub(1);
        // Whoever has gone looks at nothing; what was left goes with the interest.
        entry.left = left.or(entry.left).filter(|_| !handle.gone);
        entry.in_vain &= left.is_none();
        let interest = entry.interest.clone();
        if entry.is_over() {
            handle.watched.remove(watching);
            self.forget_if_over(id);
        }
        interest
    }

    /// An event came. Each handle is told of it, if it is about a watch of its own. What is returned
    /// is not to be dropped before the session has heard of the event.
    pub(super) fn event(&mut self, event: EventKind, path: &str) -> Vec<Arc<dyn Interest>> {
        let chroot = &self.chroot;
        let handles = self.all.values_mut();
        handles
            .flat_map(|handle| handle.event(event, path, chroot))
            .collect()
    }

    /// The handle does not look at it any more. Returns whether it did, and the interest.
    pub(super) fn stops(
        &mut self,
        id: HandleId,
        watching: &Watching,
    ) -> (bool, Option<Arc<dyn Interest>>) {
        let handle = self.all.get_mut(&id);
        handle.map_or((false, None), |handle| handle.stops(watching))
    }

    /// A watch is to be left again on another connection. Returns the interest before.
    #[must_use]
    pub(super) fn renews(
        &mut self,
        id: HandleId,
        watching: &Watching,
        interest: Option<Arc<dyn Interest>>,
    ) -> Option<Arc<dyn Interest>> {
        let handle = self.all.get_mut(&id);
        match handle.and_then(|handle| handle.watched.get_mut(watching)) {
            Some(entry) => std::mem::replace(&mut entry.interest, interest),
            None => interest,
        }
    }

    /// In these watches, as far as they are there.
    pub(super) fn interests(&self, id: HandleId, watches: &[Watching]) -> Vec<Arc<dyn Interest>> {
        let entries = watches.iter().filter_map(|one| self.watched(id, one));
        let left = entries.filter(|entry| entry.left.is_some());
        left.filter_map(|entry| entry.interest.clone()).collect()
    }

    fn watched(&self, id: HandleId, watching: &Watching) -> Option<&Watched> {
        self.all.get(&id)?.watched.get(watching)
    }

    /// What is to be left again on another connection.
    pub(super) fn left(&self, id: HandleId) -> Vec<Watching> {
        let watched = self.all.get(&id).into_iter();
        let watched = watched.flat_map(|handle| &handle.watched);
        let left = watched.filter(|(_, entry)| entry.left.is_some());
        left.map(|(watching, _)| watching.clone()).collect()
    }

    /// A connection broke while these watches were being left again: perhaps because of that.
    pub(super) fn tried_in_vain(&mut self, id: HandleId, watches: &[Watching]) {
        let Some(handle) = self.all.get_mut(&id) else {
            return;
        };
        for watching in watches {
            if let Some(entry) = handle.watched.get_mut(watching) {
                entry.in_vain = entry.left.is_some();
            }
        }
    }

    /// Of these watches, those that are not to be left again.
    pub(super) fn in_vain(&self, id: HandleId, watches: &[Watching]) -> Vec<Watching> {
        let in_vain = |one: &&Watching| self.watched(id, one).is_some_and(|entry| entry.in_vain);
        watches.iter().filter(in_vain).cloned().collect()
    }

    /// The requests that leave the others of these watches again, as far as they are still looked at,
    /// and tell of what has changed since this transaction; each with its watches.
    pub(super) fn leave_again(
        &self,
        id: HandleId,
        watches: &[Watching],
        relative_zxid: i64,
    ) -> Vec<(SetWatches, Vec<Watching>)> {
        let mut requests: Vec<(SetWatches, Vec<Watching>)> = Vec::new();
        let mut bytes = MOST_PATHS_BYTES;
        for watching in watches {
            let entry = self.watched(id, watching).filter(|entry| !entry.in_vain);
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

    /// A watch may not be on the server any more.
    #[must_use]
    pub(super) fn look_again(
        &mut self,
        id: HandleId,
        watching: &Watching,
    ) -> Option<Arc<dyn Interest>> {
        let (looked, over) = self.stops(id, watching);
        if looked {
            self.tell_to_look(id, watching, Told::LookAgain);
        }
        over
    }

    /// The session is over, and with it all watches.
    #[must_use]
    pub(super) fn expire(&mut self, id: HandleId) -> Vec<Arc<dyn Interest>> {
        let mut over = Vec::new();
        for watching in self.left(id) {
            let (looked, interest) = self.stops(id, &watching);
            over.extend(interest);
            if looked {
                self.tell_to_look(id, &watching, Told::SessionExpired);
            }
        }
        over
    }

    /// By an event that the crate hands to the watchers of this kind.
    fn tell_to_look(&mut self, id: HandleId, (kind, path): &Watching, why: Told) {
        let event = match *kind {
            WatchKind::CHILDREN => EventKind::NodeChildrenChanged,
            _ => EventKind::NodeDataChanged,
        };
        let state = match why {
            Told::LookAgain => frame::SYNC_CONNECTED,
            Told::SessionExpired => frame::EXPIRED,
        };
        let path = told(&self.chroot, path);
        let event = frame::event(event.number(), state, path.as_bytes());
        self.answer(id, &event);
    }
}

impl Handle {
    fn answer(&mut self, frame: &[u8]) {
        if self.gone {
            return;
        }
        if self.outgoing.bytes() + frame.len() <= MOST_ANSWERED_BYTES {
            self.outgoing.add(frame);
            return;
        }
        let bare = frame::without_its_record(frame);
        let frame = bare.as_deref().unwrap_or(frame);
        if self.outgoing.bytes() + frame.len() <= MOST_UNTAKEN_BYTES {
            self.outgoing.add(frame);
        } else {
            self.outgoing.clear();
            self.gone = true;
        }
    }

    fn event(&mut self, event: EventKind, path: &str, chroot: &str) -> Vec<Arc<dyn Interest>> {
        let kinds: &[WatchKind] = match event {
            EventKind::NodeDeleted => &[WatchKind::DATA, WatchKind::CHILDREN],
            EventKind::NodeCreated | EventKind::NodeDataChanged => &[WatchKind::DATA],
            EventKind::NodeChildrenChanged => &[WatchKind::CHILDREN],
        };
        if self.watched.is_empty() {
            return Vec::new();
        }
        let mut fired = false;
        let mut over = Vec::new();
        for kind in kinds {
            // Not one whose request is still to be answered: the server has answered in order.
            let (looked, interest) = self.stops(&(*kind, path.to_owned()));
            fired |= looked;
            over.extend(interest);
        }
        if fired {
            let path = told(chroot, path);
            let event = frame::event(event.number(), frame::SYNC_CONNECTED, path.as_bytes());
            self.answer(&event);
        }
        over
    }

    fn stops(&mut self, watching: &Watching) -> (bool, Option<Arc<dyn Interest>>) {
        let Some(entry) = self.watched.get_mut(watching) else {
            return (false, None);
        };
        let looked = entry.left.take().is_some();
        let over = entry.is_over().then(|| self.watched.remove(watching));
        (looked, over.flatten().and_then(|entry| entry.interest))
    }
}

impl Watched {
    fn is_over(&self) -> bool {
        self.asked == 0 && self.left.is_none()
    }
}

/// The crate cuts the chroot off, and takes what is left for the path.
fn told(chroot: &str, path: &str) -> String {
    if !chroot.is_empty() && path == chroot {
        return format!("{path}/");
    }
    path.to_owned()
}

/// The number that a handle's answer carries. The crate takes -1 for a watch event and -2 for the
/// answer to its ping, and its own numbers wrap around to both after 2^32 requests; others it does
/// not look at.
pub(super) fn number_of(header: RequestHeader) -> i32 {
    if header.opcode == frame::OP_PING {
        frame::XID_PING
    } else {
        header.xid & i32::MAX
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    struct Noted;

    impl Interest for Noted {
        fn armed(&self, _after: u64) {}
    }

    /// Until its door has gone, somebody has still to hang it up, and the door still asks for it.
    #[test]
    fn a_handle_that_was_given_up_is_not_forgotten_before_its_door_has_gone() {
        let mut handles = Handles::new(String::new());
        let id = handles.enter(1);
        let watching = (WatchKind::DATA, "/a".to_owned());
        assert!(handles.asks(id, &watching, None).is_none());
        let mut long = frame::reply(1, frame::OK);
        long.resize(1 << 20, 0);
        let length = i32::try_from(long.len() - 4).expect("short");
        long[..4].copy_from_slice(&length.to_be_bytes());
        while handles.has(id) {
            handles.answer(id, &long);
        }
        assert!(handles.heard(id, &watching, Some(Left::Missing)).is_none());
        assert!(handles.with_news().eq([id]), "to be hung up");
        // What it asks meanwhile is answered by the server, and taken off again then.
        let interest: Arc<dyn Interest> = Arc::new(Noted);
        assert!(handles.asks(id, &watching, Some(interest)).is_none());
        assert!(handles.leave(id).is_empty());
        let interest = handles.heard(id, &watching, Some(Left::Missing));
        assert!(interest.is_some(), "kept until the answer");
        assert!(handles.all.is_empty());
    }
}
