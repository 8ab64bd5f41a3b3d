//! The queue: we put a node in the folder, list the folder to see where it stands, and wait for whoever
//! is ahead.

use zklock_protocol::Children;

use crate::session::observe::say;
use std::cmp;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::acquire::{AcquireRequest, Acquisition, OthersWaiting};
use super::contender::Contender;
use super::folder::Folder;
use super::last_seen::{Last, LastSeen};
use super::{LockProtocol, PendingRelease, QueuedNode, ReleaseMode, participants, release};
use crate::error::{Error, Result};
use crate::session::{CallError, Contact, Session, Step, Waiter, Wake, Watch};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::now;
use crate::tenure::{NewTenure, Tenure};
use crate::wait::limits::TryOrWait;
use crate::znode::names::{Class, Grammar};
use crate::znode::path::{LockPath, split};
use crate::znode::sequence::Sequence;
use crate::znode::verdict::{Rule, TieOrder, Verdict, nobody_behind, verdict_by};

/// How a contender that is not first waits for its turn. The guarantees are the same; the cost and
/// the delay of a hand-over differ.
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let client = zklock::Client::connect(&server.connect_string())?;
/// use std::time::Duration;
/// use zklock::WaitStrategy;
///
/// // For servers, or proxies, that do not deliver watches.
/// let lock = zklock::Mutex::builder(&client, "/locks/nightly")
///     .wait_strategy(WaitStrategy::Polling(Duration::from_millis(250)))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitStrategy {
    /// Watches the node just ahead: a release wakes one waiter. The default.
    #[default]
    PredecessorWatch,
    /// Watches the folder: every release wakes every waiter (the "herd effect"). For comparison,
    /// and for folders with few waiters.
    ParentWatch,
    /// Lists again after each pause of this length, at least 1 ms, and waits for no watch. A
    /// hand-over takes up to one pause longer.
    ///
    /// Whoever *holds* hears of others by a watch all the same: threads of this process hand the lock
    /// to each other, and readers join each other, until one tells that somebody waits. Where no watch
    /// is delivered, turn that off ([`local_hand_off(false)`](crate::MutexBuilder::local_hand_off)); to
    /// linger is refused, and readers who join without a pause keep writers out.
    Polling(Duration),
}

/// One folder's queue, as contenders of one class in this process see it.
pub(crate) struct GlobalQueue {
    pub(super) folder: Arc<Folder>,
    /// The class of our contenders.
    pub(super) class: Class,
    rule: Rule,
    strategy: WaitStrategy,
    /// The last acquire found exactly one contender ahead of it: the next one may, too, so its
    /// first list leaves the watch that lets it take over without another list.
    second_lately: AtomicBool,
    pub(super) last_seen: LastSeen,
    /// The names of the other kind of lock that may be in the folder by mistake.
    other_kind: Option<Grammar>,
}

/// One acquire on its way through the queue, and the watches that it has left. A watch outlives the
/// step that left it: it is dropped only when the next one is there, so that it is not taken off
/// the server in between.
pub(super) struct Attempt<'a> {
    pub(super) queue: &'a GlobalQueue,
    pub(super) contender: &'a mut Contender,
    pub(super) request: &'a AcquireRequest<'a>,
    /// On the folder, for its children.
    pub(super) folder_watch: Option<Watch>,
    /// On the node that is waited for.
    pub(super) node_watch: Option<Watch>,
}

/// Where a list has shown us.
enum Found {
    Held(Acquisition),
    Ahead {
        /// The node to wait for.
        on: String,
        /// Nobody else is ahead of us.
        is_only_one: bool,
    },
    Again,
}

impl GlobalQueue {
    pub(crate) fn new(
        session: &Arc<Session>,
        path: LockPath,
        grammar: Grammar,
        class: Class,
        strategy: WaitStrategy,
        may_linger: bool,
    ) -> Self {
        Self {
            other_kind: grammar.of_other_kind(),
            folder: Folder::of_marked_nodes(session, path, grammar, may_linger),
            class,
            rule: Rule::of(class),
            strategy,
            second_lately: AtomicBool::new(false),
            last_seen: LastSeen::default(),
        }
    }

    /// The labels that tell this lock from others in its folder.
    #[cfg(not(shuttle))]
    pub(crate) fn folder_labels(&self) -> String {
        self.folder.grammar().own_labels()
    }

    /// Whether nobody waits behind this node of ours. The node itself may be waiting.
    pub(crate) fn nobody_waits_for(&self, own: &str, waiter: &Waiter<'_>) -> Step<bool> {
        let contact = waiter.contact_now()?;
        let children = self.folder.list(&contact)?.unwrap_or_default();
        Ok(nobody_behind(
            self.rule,
            self.folder.grammar(),
            own,
            &children,
        ))
    }

    /// The list's verdict on a node of ours, as long as no tie must be broken.
    pub(super) fn verdict(&self, own: &str, children: &Children) -> Verdict {
        let ties = TieOrder::default();
        verdict_by(self.rule, self.folder.grammar(), own, children, &ties)
    }

    pub(super) fn attempt<'a>(
        &'a self,
        contender: &'a mut Contender,
        request: &'a AcquireRequest<'a>,
    ) -> Attempt<'a> {
        Attempt {
            queue: self,
            contender,
            request,
            folder_watch: None,
            node_watch: None,
        }
    }

    /// An error if a lock of another kind is used in this folder: the two do not exclude each other.
    /// Only whoever came later is told, which is us if nodes of the other kind are before `own`, or
    /// we have none.
    pub(super) fn refuse_other_kind(&self, own: Option<&str>, children: &Children) -> Step<()> {
        let Some(other_kind) = &self.other_kind else {
            return Ok(());
        };
        let grammar = self.folder.grammar();
        let own = own.and_then(|own| grammar.parse(own));
        let came_first = |name: &&str| {
            let other = other_kind.parse(name);
            let is_before = |number: Sequence| {
                own.is_none_or(|own| number.order(own.sequence) == Some(cmp::Ordering::Less))
            };
            other.is_some_and(|other| is_before(other.sequence)) && grammar.parse(name).is_none()
        };
        let Some(name) = children.iter().find(came_first) else {
            return Ok(());
        };
        let (folder, ours, theirs) = (self.folder.path(), grammar.kind(), other_kind.kind());
        Err(CallError::Left(Error::invalid(format!(
            "{folder}: this is {ours}, and {name} there is of {theirs}: they do not exclude each \
             other; use locks of one kind at one path"
        ))))
    }

    /// Until when to wait for the node `on` without a look at our own.
    ///
    /// Whoever waits does not hear that its node was removed by hand, and queues again when the one
    /// ahead has gone. One that lingers stays if it sees that nobody waits. So who may be right
    /// behind such a one looks now and then. (Readers are ahead side by side.)
    pub(super) fn look_again_behind(&self, on: &str, is_only_one: bool) -> Option<Instant> {
        let ahead = self.folder.grammar().parse(on)?;
        let may_be_idle = ahead.may_linger() && (is_only_one || ahead.class == Class::Read);
        may_be_idle.then(|| now().checked_add(BEHIND_AN_IDLE_LOCK))?
    }

    /// Looks for what a newcomer would have to wait for.
    pub(super) fn obstacle(&self, children: &Children) -> Obstacle {
        let grammar = self.folder.grammar();
        let contenders = children.iter().filter_map(|name| grammar.parse(name));
        let (mut blocking, mut reading, mut lingering) = (0, 0, 0);
        for other in contenders.filter(|other| self.rule.is_blocked_by(other.class)) {
            blocking += 1;
            reading += usize::from(other.class == Class::Read);
            lingering += usize::from(other.may_linger());
        }
        // Of two of whom one excludes the other, one waits: it does not linger, and ends what does.
        let are_together = blocking == 1 || reading == blocking;
        match blocking {
            0 => Obstacle::Nothing,
            _ if are_together && lingering == blocking => Obstacle::PerhapsNobodyInside,
            _ => Obstacle::Somebody,
        }
    }

    /// Takes a lock that may be idle, by queueing: that is how its holder learns that somebody
    /// wants it. A lock that is not given up within [`FOR_AN_IDLE_LOCK`] is in use.
    fn take_if_given_up(&self, request: &AcquireRequest<'_>) -> Result<Option<Acquisition>> {
        let mut contender = self.begin();
        let try_or_wait = TryOrWait::during(FOR_AN_IDLE_LOCK);
        try_or_wait.attempt(
            || Ok(None),
            |limits| {
                let waiter = Waiter::new(self.session(), limits);
                self.acquire(&mut contender, &waiter, request)
            },
        )
    }
}

/// How long a try waits for a lock that may be idle. An idle lock is given up after one watch
/// event, by one delete: milliseconds, even on a busy machine.
const FOR_AN_IDLE_LOCK: Duration = Duration::from_millis(200);

/// After how long a waiter looks again behind a lock that may be idle.
const BEHIND_AN_IDLE_LOCK: Duration = Duration::from_secs(2);

/// The obstacle that a try finds.
pub(super) enum Obstacle {
    Nothing,
    /// One contender, or several readers, all of whom may be kept with nobody inside.
    PerhapsNobodyInside,
    Somebody,
}

impl LockProtocol for GlobalQueue {
    fn session(&self) -> &Arc<Session> {
        self.folder.session()
    }

    fn path(&self) -> &LockPath {
        self.folder.path()
    }

    fn begin(&self) -> Contender {
        Contender::new(&self.folder)
    }

    fn acquire(
        &self,
        contender: &mut Contender,
        waiter: &Waiter<'_>,
        request: &AcquireRequest<'_>,
    ) -> Result<Acquisition> {
        let mut attempt = self.attempt(contender, request);
        self.folder.retry(waiter, |contact| attempt.look(contact))
    }

    fn try_acquire(
        &self,
        waiter: &Waiter<'_>,
        request: &AcquireRequest<'_>,
    ) -> Result<Option<Acquisition>> {
        let mut contender = self.begin();
        let contact = waiter.contact_now();
        let contact = contact.map_err(|error| self.folder.failure(error))?;
        let listed = self.folder.list(&contact);
        let children = listed.map_err(|error| self.folder.failure(error))?;
        let children = children.unwrap_or_default();
        let alone = self.refuse_other_kind(None, &children);
        alone.map_err(|error| self.folder.failure(error))?;
        match self.obstacle(&children) {
            Obstacle::Nothing => {}
            Obstacle::PerhapsNobodyInside => return self.take_if_given_up(request),
            Obstacle::Somebody => return Ok(None),
        }
        let mut take = || {
            let mut attempt = self.attempt(&mut contender, request);
            match attempt.find(&contact, request.wants_news)? {
                Found::Held(acquired) => Ok(Some(acquired)),
                Found::Ahead { .. } | Found::Again => Ok(None),
            }
        };
        take().map_err(|error| self.folder.failure(error))
    }

    fn look_for_others(&self, tenure: &Tenure, contact: &Contact<'_>) -> Step<OthersWaiting> {
        tenure.stands_on(contact)?;
        let watch = self.folder.watch(contact, None);
        let children = self.folder.list_and_watch(contact, &watch)?;
        let (_, own) = split(tenure.node());
        match self.verdict(own, &children.unwrap_or_default()) {
            Verdict::Held { others_behind } => Ok(if others_behind {
                OthersWaiting::Yes(Some(watch))
            } else {
                OthersWaiting::No(watch)
            }),
            // One number for two nodes, so there is another contender.
            Verdict::Tied { .. } => Ok(OthersWaiting::Yes(Some(watch))),
            Verdict::Wait { .. } | Verdict::Gone => {
                Err(CallError::Left(Error::removed(tenure.node())))
            }
        }
    }

    /// Waits for nothing in either mode.
    fn start_release(
        &self,
        tenure: &Arc<Tenure>,
        news: OthersWaiting,
        _: ReleaseMode,
    ) -> PendingRelease {
        release::start_release(&self.folder, tenure, news)
    }

    fn participants(&self) -> Result<Vec<QueuedNode>> {
        participants::of(&self.folder)
    }

    fn revoke(&self, path: &str) -> Result<bool> {
        participants::revoke(&self.folder, path)
    }

    fn break_lock(&self, path: &str) -> Result<bool> {
        participants::break_lock(&self.folder, path)
    }

    fn as_queue(&self) -> Option<&GlobalQueue> {
        Some(self)
    }
}

impl Attempt<'_> {
    /// Looks at the queue, and waits once if somebody is ahead.
    fn look(&mut self, contact: &Contact<'_>) -> Step<Option<Acquisition>> {
        let queue = self.queue;
        // Whoever wants to know its position must hear of every change ahead.
        let strategy = match self.request.reporter {
            Some(_) if queue.strategy == WaitStrategy::PredecessorWatch => {
                WaitStrategy::ParentWatch
            }
            _ => queue.strategy,
        };
        let by_folder = strategy == WaitStrategy::ParentWatch;
        let second_lately = queue.second_lately.load(Ordering::Relaxed);
        let arm = self.request.wants_news || by_folder || second_lately;
        // A reader need not wait for whoever is ahead.
        let by_list = arm || strategy != WaitStrategy::PredecessorWatch;
        if !by_list
            && queue.rule == Rule::Exclusive
            && self.contender.is_not_created()
            && let Some(last) = queue.last_seen.take()
            && let Some(last) = self.enter_behind(contact, last)?
        {
            return self.wait_for(contact, &last, false);
        }
        let (on, is_only_one) = match self.find(contact, arm)? {
            Found::Held(acquired) => return Ok(Some(acquired)),
            Found::Again => return Ok(None),
            Found::Ahead { on, is_only_one } => (on, is_only_one),
        };
        self.wait(contact, strategy, &on, is_only_one)
    }

    fn wait(
        &mut self,
        contact: &Contact<'_>,
        strategy: WaitStrategy,
        on: &str,
        is_only_one: bool,
    ) -> Step<Option<Acquisition>> {
        match strategy {
            WaitStrategy::PredecessorWatch => {
                let second_lately = &self.queue.second_lately;
                second_lately.store(is_only_one, Ordering::Relaxed);
                return self.wait_for(contact, on, is_only_one);
            }
            WaitStrategy::ParentWatch => {
                let folder = self.folder_watch.as_ref().expect("armed with the list");
                contact.sleep_until_any(&[folder])?;
            }
            WaitStrategy::Polling(pause) => {
                contact.sleep_till(now().checked_add(pause.max(Duration::from_millis(1))))?;
            }
        }
        Ok(None)
    }

    /// Gets in line. Returns the name of the one who was last if its number is the one before ours.
    /// Whether it stands is not known.
    fn enter_behind(&mut self, contact: &Contact<'_>, last: Last) -> Step<Option<String>> {
        let queue = self.queue;
        if !self.contender.enter(contact, queue.class, self.request)? {
            return Ok(None);
        }
        let own = split(&self.contender.nodes()[0].path).1;
        let own = queue.folder.grammar().parse(own);
        let is_next = own.is_some_and(|own| own.sequence.is_next_after(last.number));
        Ok(is_next.then_some(last.name))
    }

    /// Enters if that is not done yet, lists, and says where we stand. With `arm`, leaves a watch
    /// on the folder.
    fn find(&mut self, contact: &Contact<'_>, arm: bool) -> Step<Found> {
        let Some(children) = self.enter_and_list(contact, arm)? else {
            return Ok(Found::Again);
        };
        let queue = self.queue;
        let own = split(&self.contender.nodes()[0].path).1.to_owned();
        queue.refuse_other_kind(Some(&own), &children)?;
        let mut ties = TieOrder::default();
        loop {
            match verdict_by(queue.rule, queue.folder.grammar(), &own, &children, &ties) {
                Verdict::Held { others_behind } => {
                    let acquired = self.win(contact, others_behind)?;
                    if acquired.is_some() && others_behind {
                        queue.last_seen.note(&queue.folder, &children);
                    }
                    return Ok(acquired.map_or(Found::Again, Found::Held));
                }
                Verdict::Wait { on, ahead } => return Ok(self.is_behind(&own, on, ahead)),
                Verdict::Gone => {
                    self.contender.removed();
                    return Ok(Found::Again);
                }
                Verdict::Tied { with } => {
                    if !self.order_by_creation(contact, with, &mut ties)? {
                        return Ok(Found::Again);
                    }
                }
            }
        }
    }

    fn is_behind(&self, own: &str, on: String, ahead: usize) -> Found {
        let folder = &self.queue.folder;
        let (session, path) = (folder.session(), folder.path());
        say!(session, Debug, "{path}: {ahead} ahead of {own}");
        self.request.report(ahead);
        let is_only_one = ahead == 1;
        Found::Ahead { on, is_only_one }
    }

    /// Asks when nodes of one number were created. `false`: one went since the list.
    fn order_by_creation(
        &self,
        contact: &Contact<'_>,
        tied: Vec<String>,
        ties: &mut TieOrder,
    ) -> Step<bool> {
        for name in tied {
            let Some(stat) = self.queue.folder.stat(contact, &name)? else {
                return Ok(false);
            };
            ties.insert(name, stat.czxid);
        }
        Ok(true)
    }

    fn enter_and_list(&mut self, contact: &Contact<'_>, arm: bool) -> Step<Option<Children>> {
        let folder = &self.queue.folder;
        if arm && !self.folder_watch.as_ref().is_some_and(Watch::is_live) {
            let wake = Wake::Signal(Arc::clone(contact.signal()));
            self.folder_watch = Some(folder.watch(contact, Some(wake)));
        }
        let watch = self.folder_watch.as_ref().filter(|_| arm);
        let (class, request) = (self.queue.class, self.request);
        let listed = self
            .contender
            .enter_and_list(contact, class, request, watch)?;
        Ok(listed.children)
    }

    /// The list has shown us at the head.
    pub(super) fn win(
        &mut self,
        contact: &Contact<'_>,
        others_behind: bool,
    ) -> Step<Option<Acquisition>> {
        let Some(tenure) = Tenure::begin(contact, NewTenure::of(self.contender.nodes()))? else {
            return Ok(None);
        };
        self.contender.disown();
        say!(tenure.session(), Debug, "{}: acquired", tenure.node());
        let news = match (others_behind, self.folder_watch.take()) {
            (true, watch) => OthersWaiting::Yes(watch),
            (false, Some(watch)) if watch.is_live() => OthersWaiting::No(watch),
            (false, watch) => OthersWaiting::Unknown(watch),
        };
        Ok(Some(Acquisition { tenure, news }))
    }
}
