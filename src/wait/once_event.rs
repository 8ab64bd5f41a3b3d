//! [`OnceEvent`]: what happens once, and may be asked for and waited for at any time after.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use crossbeam_channel::{Receiver, Sender};

use crate::sync::Mutex;

/// Whoever listens has a channel of its own, which delivers the event and is disconnected from then
/// on: a `select!` over it is ready for good.
///
/// An event that comes late, or never, has had many listeners, so nothing is kept of those who have gone.
pub(crate) struct OnceEvent<T> {
    state: Mutex<EventState<T>>,
}

struct EventState<T> {
    value: Option<T>,
    channel: Option<Sender<T>>,
    others: Vec<Weak<OnceEvent<T>>>,
}

/// One who listens. The channel ends with it, for clones of the receiver, too: a receiver does not
/// say whether anybody has it still.
pub(crate) struct Listener<T> {
    told: Receiver<T>,
    /// Has the other end of the channel.
    _event: Arc<OnceEvent<T>>,
}

impl<T: Copy> Listener<T> {
    /// One to whom nothing is told: its channel is at its end.
    pub(crate) fn never() -> Self {
        let (_, told) = crossbeam_channel::bounded(1);
        let _event = Arc::new(OnceEvent::new());
        Self { told, _event }
    }
}

impl<T> Deref for Listener<T> {
    type Target = Receiver<T>;

    fn deref(&self) -> &Receiver<T> {
        &self.told
    }
}

impl<T: Copy> OnceEvent<T> {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(EventState {
                value: None,
                channel: None,
                others: Vec::new(),
            }),
        }
    }

    /// The first one is told; others come too late.
    pub(crate) fn tell(&self, news: T) {
        let (channel, others) = {
            let mut state = self.state.lock();
            if state.value.is_some() {
                return;
            }
            state.value = Some(news);
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

    /// What was told, if it was.
    pub(crate) fn get(&self) -> Option<T> {
        self.state.lock().value
    }

    /// A channel of one listener's own.
    pub(crate) fn listen(&self) -> Listener<T> {
        let (tell, told) = crossbeam_channel::bounded(1);
        let own = Self::new();
        own.state.lock().channel = Some(tell);
        let own = Arc::new(own);
        self.pass_on_to(&own);
        Listener { told, _event: own }
    }

    /// How many are to be told.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn listeners(&self) -> usize {
        self.state.lock().others.len()
    }

    /// Has the news told to `other`, too, as long as that is there.
    pub(crate) fn pass_on_to(&self, other: &Arc<Self>) {
        let mut state = self.state.lock();
        let Some(news) = state.value else {
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
        let news = OnceEvent::new();
        let (early, second) = (news.listen(), news.listen());
        assert!(early.try_recv().is_err_and(|error| error.is_empty()));
        news.tell(1);
        news.tell(2);
        let late = news.listen();
        for listener in [early, second, late] {
            assert_eq!(listener.recv(), Ok(1));
            assert!(listener.recv().is_err());
        }
        assert_eq!(news.get(), Some(1));
    }

    #[test]
    fn passes_on_what_was_and_what_will_be_said() {
        let (news, early, late) = (
            OnceEvent::new(),
            Arc::new(OnceEvent::new()),
            Arc::new(OnceEvent::new()),
        );
        news.pass_on_to(&early);
        news.tell(7);
        news.pass_on_to(&late);
        assert_eq!((early.get(), late.get()), (Some(7), Some(7)));
    }

    #[test]
    fn keeps_nothing_of_those_who_have_gone() {
        let news = OnceEvent::<u8>::new();
        for _ in 0..100 {
            news.pass_on_to(&Arc::new(OnceEvent::new()));
            drop(news.listen());
        }
        assert!(news.listeners() <= 1);
    }
}
