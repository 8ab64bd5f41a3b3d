//! A channel that follows what a node, or a folder, says, with a thread of its own.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::session::observe::say;
use crate::session::{Contact, Session, Step, Waiter, Watch};
use crate::wait::cancel::CancelToken;
use crate::wait::limits::WaitLimits;
use crate::znode::path::LockPath;

/// News that nobody has read, at most.
const CAPACITY: usize = 1024;

/// What can be followed.
pub(super) trait Subject: Send + 'static {
    type News: Clone + PartialEq + Send + 'static;

    /// The name of the thread.
    const THREAD: &'static str;

    /// Whether the first look is news.
    const TELLS_FIRST: bool;

    fn path(&self) -> &LockPath;

    /// Looks, and leaves a watch that fires when there may be other news. The news is `None` if
    /// there is nothing to tell yet.
    fn look(&mut self, contact: &Contact<'_>) -> Step<(Option<Self::News>, Watch)>;

    /// What is to be told as long as nobody can look.
    fn out_of_contact(&self) -> Option<Self::News> {
        None
    }
}

/// The reader's end. Dropping it ends the thread, and the channel with it.
pub(super) struct Following<T> {
    news: Receiver<T>,
    stop: CancelToken,
    /// Keeps the session open.
    _client: Client,
}

/// The thread's end.
struct Follower<S: Subject> {
    session: Arc<Session>,
    subject: S,
    known: Option<S::News>,
    watching: Option<Watch>,
    to: Sender<S::News>,
    unread: Receiver<S::News>,
}

impl<T: Send + 'static> Following<T> {
    /// Begins, and returns when the first look has been answered.
    pub(super) fn begin<S: Subject<News = T>>(client: &Client, subject: S) -> Result<Self> {
        let (to, news) = bounded(CAPACITY);
        let (begun, has_begun) = bounded(1);
        let session = Arc::clone(client.session());
        session.refuse_child()?;
        let path = subject.path().clone();
        let follower = Follower {
            session,
            subject,
            known: None,
            watching: None,
            to,
            unread: news.clone(),
        };
        let following = Self {
            news,
            stop: CancelToken::new(),
            _client: client.clone(),
        };
        let limits = WaitLimits {
            cancel: Some(following.stop.clone()),
            ..WaitLimits::none()
        };
        let run = move || follower.run(&limits, &begun);
        crate::sync::spawn(S::THREAD, run).map_err(|error| {
            let context = format!("{path}: no thread for its changes");
            Error::refused(context).source(error)
        })?;
        match has_begun.recv() {
            Ok(begun) => begun.map(|()| following),
            Err(_) => Err(Error::closed()),
        }
    }

    pub(super) fn news(&self) -> &Receiver<T> {
        &self.news
    }
}

impl<T> Drop for Following<T> {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl<S: Subject> Follower<S> {
    fn run(mut self, limits: &WaitLimits, begun: &Sender<Result<()>>) {
        let session = Arc::clone(&self.session);
        let mut waiter = Waiter::new(&session, limits);
        let path = self.subject.path().clone();
        let first = waiter.retry(path.as_str(), |contact| self.look(contact).map(Some));
        let is_begun = first.is_ok();
        // Whoever waits for the beginning hears it.
        drop(begun.try_send(first));
        if !is_begun {
            return;
        }
        // From here on nobody waits, and nobody would hear of an end.
        waiter.never_give_up();
        let ended: Result<()> = waiter.retry(path.as_str(), |contact| {
            let looked = self.step(contact);
            // Told before the wait for the next connection, which may be long.
            if looked.is_err() || !contact.is_open() {
                let nothing_known = self.subject.out_of_contact();
                nothing_known.into_iter().for_each(|news| self.tell(news));
            }
            looked.map(|()| None)
        });
        if let Err(error) = ended
            && !error.is_cancelled()
            && !error.is_closed()
        {
            say!(session, Warn, "its changes are told no more: {error}");
        }
    }

    /// Waits for a change, unless that has to be looked for, and looks.
    fn step(&mut self, contact: &Contact<'_>) -> Step<()> {
        if let Some(watch) = self.watching.as_ref().filter(|watch| watch.is_live()) {
            contact.sleep_until_any(&[watch])?;
        }
        if contact.is_open() {
            self.look(contact)?;
        }
        Ok(())
    }

    /// Looks and tells, and leaves a watch.
    fn look(&mut self, contact: &Contact<'_>) -> Step<()> {
        let (news, watch) = self.subject.look(contact)?;
        // The one before goes now that the next is left: where it is on the same path, it stays.
        self.watching = Some(watch);
        match news {
            Some(news) if S::TELLS_FIRST || self.known.is_some() => self.tell(news),
            Some(news) => self.known = Some(news),
            None => {}
        }
        Ok(())
    }

    fn tell(&mut self, news: S::News) {
        if self.known.as_ref() == Some(&news) {
            return;
        }
        self.known = Some(news.clone());
        let mut news = news;
        while let Err(TrySendError::Full(again)) = self.to.try_send(news) {
            // The oldest makes room.
            let _ = self.unread.try_recv();
            news = again;
        }
    }
}
