//! One piece of news for many ears: told once, heard at any time after.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use crossbeam_channel::{Receiver, Sender};

use crate::sync::Mutex;

/// Something that is said once. Whoever listens has a channel of its own, which delivers it and is
/// disconnected from then on: a `select!` over it is ready for good.
///
/// What is said late, or never, has had many listeners, so nothing is kept of those who have gone.
pub(crate) struct Announcement<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    said: Option<T>,
    channel: Option<Sender<T>>,
    others: Vec<Weak<Announcement<T>>>,
}

/// One who listens. The channel ends with it, for clones of the receiver, too: a receiver does not
/// say whether anybody has it still.
pub(crate) struct Listener<T> {
    told: Receiver<T>,
    /// Has the other end of the channel.
    _ear: Arc<Announcement<T>>,
}

impl<T: Copy> Listener<T> {
    /// One to whom nothing is told: its channel is at its end.
    pub(crate) fn deaf() -> Self {
        let (_, told) = crossbeam_channel::bounded(1);
        let _ear = Arc::new(Announcement::new());
        Self { told, _ear }
    }
}

impl<T> Deref for Listener<T> {
    type Target = Receiver<T>;

    fn deref(&self) -> &Receiver<T> {
        &self.told
    }
}

impl<T: Copy> Announcement<T> {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                said: None,
                channel: None,
                others: Vec::new(),
            }),
        }
    }

    /// The first one is told; others come too late.
    pub(crate) fn tell(&self, news: T) {
        let (channel, others) = {
            let mut state = self.state.lock();
            if state.said.is_some() {
                return;
            }
            state.said = Some(news);
            (state.channel.take(), std::mem::take(&mut state.others))
        };
        if let Some(tell) = channel {
            // It has room for one, and this is the one.
            let _ = tell.try_send(news);
        }
        for other in others.iter().filter_map(Weak::upgrade) {
            other.tell(news);
        }
    }

    /// What was told.
    pub(crate) fn said(&self) -> Option<T> {
        self.state.lock().said
    }

    /// A channel of one listener's own.
    pub(crate) fn listen(&self) -> Listener<T> {
        let (tell, told) = crossbeam_channel::bounded(1);
        let ear = Self::new();
        ear.state.lock().channel = Some(tell);
        let ear = Arc::new(ear);
        self.pass_on_to(&ear);
        Listener { told, _ear: ear }
    }

    /// How many are to be told.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn ears(&self) -> usize {
        self.state.lock().others.len()
    }

    /// Has the news told to `other`, too, as long as that is there.
    pub(crate) fn pass_on_to(&self, other: &Arc<Self>) {
        let mut state = self.state.lock();
        let Some(news) = state.said else {
            state.others.retain(|other| other.strong_count() > 0);
            state.others.push(Arc::downgrade(other));
            return;
        };
        drop(state);
        other.tell(news);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn tells_each_listener_once_and_is_ready_for_good() {
        let news = Announcement::new();
        let (early, second) = (news.listen(), news.listen());
        assert!(early.try_recv().is_err_and(|error| error.is_empty()));
        news.tell(1);
        news.tell(2);
        let late = news.listen();
        for ear in [early, second, late] {
            assert_eq!(ear.recv(), Ok(1));
            assert!(ear.recv().is_err());
        }
        assert_eq!(news.said(), Some(1));
    }

    #[test]
    fn passes_on_what_was_and_what_will_be_said() {
        let (news, early, late) = (
            Announcement::new(),
            Arc::new(Announcement::new()),
            Arc::new(Announcement::new()),
        );
        news.pass_on_to(&early);
        news.tell(7);
        news.pass_on_to(&late);
        assert_eq!((early.said(), late.said()), (Some(7), Some(7)));
    }

    #[test]
    fn keeps_nothing_of_those_who_have_gone() {
        let news = Announcement::<u8>::new();
        for _ in 0..100 {
            news.pass_on_to(&Arc::new(Announcement::new()));
            drop(news.listen());
        }
        assert!(news.ears() <= 1);
    }
}
