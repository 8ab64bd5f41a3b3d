//! Sessions, and when they expire.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// What a server keeps of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub(crate) timeout: Duration,
    /// On the server's clock.
    pub(crate) expires_at: Duration,
}

#[derive(Debug)]
pub(crate) struct Sessions {
    sessions: BTreeMap<i64, Session>,
    by_expiry: BTreeSet<(Duration, i64)>,
    next_id: i64,
    secret: u64,
    /// Sessions expire at multiples of it.
    tick: Duration,
}

impl Sessions {
    pub(crate) fn new(first_id: i64, tick: Duration, secret: u64) -> Self {
        Self {
            sessions: BTreeMap::new(),
            by_expiry: BTreeSet::new(),
            next_id: first_id,
            secret,
            tick,
        }
    }

    pub(crate) fn create(&mut self, timeout: Duration, now: Duration) -> i64 {
        let id = self.next_id();
        self.insert(id, timeout, now);
        id
    }

    /// For a session that is still to be made.
    pub(crate) fn next_id(&mut self) -> i64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// One that has its whole time from now on.
    pub(crate) fn insert(&mut self, id: i64, timeout: Duration, now: Duration) {
        let expires_at = self.round_up(now + timeout);
        let session = Session {
            timeout,
            expires_at,
        };
        if let Some(before) = self.sessions.insert(id, session) {
            self.by_expiry.remove(&(before.expires_at, id));
        }
        self.by_expiry.insert((expires_at, id));
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.sessions.clear();
        self.by_expiry.clear();
    }

    pub(crate) fn get(&self, id: i64) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// Whether it is there. It lives at least for `timeout` from now.
    pub(crate) fn touch(&mut self, id: i64, timeout: Duration, now: Duration) -> bool {
        let expires_at = self.round_up(now + timeout);
        let Some(session) = self.sessions.get_mut(&id) else {
            return false;
        };
        if session.expires_at != expires_at {
            self.by_expiry.remove(&(session.expires_at, id));
            self.by_expiry.insert((expires_at, id));
        }
        *session = Session {
            timeout,
            expires_at,
        };
        true
    }

    /// Gives every session its whole time again, as a server does that starts.
    pub(crate) fn renew_all(&mut self, now: Duration) {
        let all: Vec<_> = self
            .sessions
            .iter()
            .map(|(id, session)| (*id, session.timeout))
            .collect();
        for (id, timeout) in all {
            self.touch(id, timeout, now);
        }
    }

    pub(crate) fn remove(&mut self, id: i64) -> bool {
        let Some(session) = self.sessions.remove(&id) else {
            return false;
        };
        self.by_expiry.remove(&(session.expires_at, id));
        true
    }

    /// A session whose time is over.
    pub(crate) fn expired(&self, now: Duration) -> Option<i64> {
        let &(at, id) = self.by_expiry.first()?;
        (at <= now).then_some(id)
    }

    pub(crate) fn next_expiry(&self) -> Option<Duration> {
        self.by_expiry.first().map(|(at, _)| *at)
    }

    pub(crate) fn contains(&self, id: i64) -> bool {
        self.sessions.contains_key(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, Session)> {
        self.sessions.iter().map(|(id, session)| (*id, *session))
    }

    /// Proves that a session is one's own.
    pub(crate) fn password(&self, id: i64) -> [u8; 16] {
        let mut password = [0; 16];
        let (first, second) = password.split_at_mut(8);
        for (half, bytes) in [first, second].into_iter().enumerate() {
            let mut hasher = DefaultHasher::new();
            (self.secret, id, half).hash(&mut hasher);
            bytes.copy_from_slice(&hasher.finish().to_be_bytes());
        }
        password
    }

    /// Always later, by at most a tick.
    fn round_up(&self, at: Duration) -> Duration {
        let tick = self.tick.as_nanos().max(1);
        let rounded = (at.as_nanos() / tick + 1) * tick;
        Duration::from_nanos(u64::try_from(rounded).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_session_lives_for_its_time_and_up_to_a_tick_more() {
        let mut sessions = Sessions::new(7, MS * 100, 0);
        let id = sessions.create(MS * 1000, MS * 30);
        assert_eq!(id, 7);
        assert_eq!(sessions.next_expiry(), Some(MS * 1100));
        assert!(sessions.touch(id, MS * 1000, MS * 500));
        assert_eq!(sessions.expired(MS * 1100), None);
        assert_eq!(sessions.next_expiry(), Some(MS * 1600));
        assert_eq!(sessions.expired(MS * 1600), Some(id));
        assert!(sessions.remove(id));
        assert!(!sessions.touch(id, MS, MS));
        assert_eq!((sessions.len(), sessions.next_expiry()), (0, None));
    }

    #[test]
    fn passwords_differ() {
        let sessions = Sessions::new(1, MS, 0);
        assert_ne!(sessions.password(1), sessions.password(2));
        assert_eq!(sessions.password(1), sessions.password(1));
        let others = Sessions::new(1, MS, 1);
        assert_ne!(sessions.password(1), others.password(1));
    }
}
