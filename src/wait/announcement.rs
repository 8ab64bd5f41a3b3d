//! One piece of news for many ears: told once, heard at any time after.

use crossbeam_channel::{Receiver, Sender};

use crate::sync::Mutex;

/// A channel that delivers one value, to one receiver, and is disconnected from then on: a
/// `select!` over it is ready for good.
pub(crate) struct Announcement<T> {
    state: Mutex<State<T>>,
    told: Receiver<T>,
}

enum State<T> {
    Silent(Sender<T>),
    Told(T),
}

impl<T: Copy> Announcement<T> {
    pub(crate) fn new() -> Self {
        let (tell, told) = crossbeam_channel::bounded(1);
        Self {
            state: Mutex::new(State::Silent(tell)),
            told,
        }
    }

    /// The first one is told; others come too late.
    pub(crate) fn tell(&self, news: T) {
        let mut state = self.state.lock();
        if let State::Silent(tell) = &*state {
            // The channel has room for one, and this is the one.
            let _ = tell.try_send(news);
            *state = State::Told(news);
        }
    }

    /// What was told; takes nothing from the receiver.
    pub(crate) fn said(&self) -> Option<T> {
        match *self.state.lock() {
            State::Silent(_) => None,
            State::Told(news) => Some(news),
        }
    }

    pub(crate) fn told(&self) -> &Receiver<T> {
        &self.told
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn tells_once_and_is_ready_for_good() {
        let news = Announcement::new();
        assert!(news.told().try_recv().is_err_and(|error| error.is_empty()));
        news.tell(1);
        news.tell(2);
        assert_eq!(news.said(), Some(1));
        assert_eq!(news.told().recv(), Ok(1));
        assert!(news.told().recv().is_err());
        assert_eq!(news.said(), Some(1));
    }
}
