//! The locks under torture. Nothing else of the worker knows the library.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use zklock::{
    AcquireOptions, Begun, CancelToken, Client, Election, Error, JobRun, Leadership, LockState,
    LossReason, MultiLock, MultiLockGuard, Mutex, MutexGuard, OncePer, Permit, Rerun, Result,
    RwLock, RwReadGuard, RwWriteGuard, Semaphore, SemaphoreMutex, SemaphoreMutexGuard, SimpleMutex,
    SimpleMutexGuard, WhoLeads,
};

use testbed_programs::random::Random;

/// The length of a job's period: a section may be shorter or longer.
const PERIOD: Duration = Duration::from_millis(50);

/// How many permits a semaphore has; the driver tells the checker.
const PERMITS: u32 = 3;

/// What a leader's worker still has to do when it is told.
const A_STEP: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    SemaphoreMutex,
    SimpleMutex,
    Rw,
    Semaphore,
    Multi,
    Election,
    Once,
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Kind, String> {
        Ok(match name {
            "mutex" => Kind::Mutex,
            "semaphore-mutex" => Kind::SemaphoreMutex,
            "simple-mutex" => Kind::SimpleMutex,
            "rw" => Kind::Rw,
            "semaphore" => Kind::Semaphore,
            "multi" => Kind::Multi,
            "election" => Kind::Election,
            "once" => Kind::Once,
            other => return Err(format!("not a lock: {other}")),
        })
    }
}

/// What a call asks for, and then allows, in the words of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    Alone,
    Shared,
    Permits(u32),
}

impl Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Right::Alone => f.write_str("alone"),
            Right::Shared => f.write_str("shared"),
            Right::Permits(count) => write!(f, "permits:{count}"),
        }
    }
}

/// How to ask.
#[derive(Debug, Clone)]
pub(crate) enum Verb {
    Wait,
    Try,
    For(Duration),
    WithDeadline(Duration),
    WithCancel(CancelToken),
}

impl Verb {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Verb::Wait => "wait",
            Verb::Try => "try",
            Verb::For(_) => "for",
            Verb::WithDeadline(_) => "deadline",
            Verb::WithCancel(_) => "cancel",
        }
    }

    fn options(&self) -> AcquireOptions {
        let options = AcquireOptions::new();
        match self {
            Verb::Wait | Verb::Try => options,
            Verb::For(timeout) | Verb::WithDeadline(timeout) => options.timeout(*timeout),
            Verb::WithCancel(token) => options.cancel(token),
        }
    }
}

/// Connects, however long that takes: the nemesis may be at it.
pub(crate) fn connect(servers: &str, session: Duration) -> Client {
    loop {
        let client = Client::builder(servers).session_timeout(session).connect();
        match client {
            Ok(client) => return client,
            Err(error) => eprintln!("torture worker: {error}"),
        }
    }
}

/// One lock of this process, for all its threads. Locks live as long as the process.
pub(crate) enum Lock {
    Mutex(Mutex),
    SemaphoreMutex(SemaphoreMutex),
    SimpleMutex(SimpleMutex),
    Rw(RwLock),
    Semaphore(Semaphore),
    Multi(MultiLock),
    Election(Election),
    Once(OncePer),
}

impl Lock {
    /// A lock with settings as the dice fall.
    pub(crate) fn build(
        kind: Kind,
        client: &Client,
        path: &str,
        random: &mut Random,
    ) -> Result<Lock> {
        let linger = Duration::from_millis(random.of(&[0, 0, 50, 500]));
        let hands_over = random.percent(80);
        let handoffs = random.of(&[0, 0, 1, 5]);
        // Threads that never hand over do not do so a number of times.
        let handoffs = if hands_over { handoffs } else { 0 };
        Ok(match kind {
            Kind::Mutex => Lock::Mutex(
                Mutex::builder(client, path)
                    .local_hand_off(hands_over)
                    .max_handoffs(handoffs)
                    .linger(linger)
                    .build()?,
            ),
            Kind::SemaphoreMutex => Lock::SemaphoreMutex(
                SemaphoreMutex::builder(client, path)
                    .linger(linger)
                    .build()?,
            ),
            Kind::SimpleMutex => {
                Lock::SimpleMutex(SimpleMutex::new(client, &format!("{path}/one"))?)
            }
            Kind::Rw => Lock::Rw(
                RwLock::builder(client, path)
                    .local_hand_off(hands_over)
                    .max_handoffs(handoffs)
                    .read_linger(linger)
                    .build()?,
            ),
            Kind::Semaphore => Lock::Semaphore(
                Semaphore::builder(client, path)
                    .max(PERMITS)
                    .linger(linger)
                    .build()?,
            ),
            Kind::Multi => {
                let part = |name: &str| Mutex::new(client, &format!("{path}/{name}"));
                let parts = MultiLock::builder().with(part("b")?).with(part("a")?);
                Lock::Multi(parts.build()?)
            }
            Kind::Election => Lock::Election(Election::new(client, path)?),
            Kind::Once => Lock::Once(
                OncePer::builder(client, path)
                    .every(PERIOD)
                    .catch_up(random.of(&[0, 2]))
                    .after_death(Rerun::Again)
                    .build()?,
            ),
        })
    }

    /// What to ask for next.
    pub(crate) fn pick(&self, verb: &Verb, random: &mut Random) -> Right {
        match (self, verb) {
            (Lock::Rw(_), _) => random.of(&[Right::Alone, Right::Shared, Right::Shared]),
            // No verb waits for several for a time.
            (Lock::Semaphore(_), Verb::For(_)) => Right::Permits(1),
            (Lock::Semaphore(_), _) => {
                random.of(&[Right::Permits(1), Right::Permits(1), Right::Permits(2)])
            }
            _ => Right::Alone,
        }
    }

    pub(crate) fn is_reentrant(&self) -> bool {
        matches!(self, Lock::Mutex(_) | Lock::SimpleMutex(_))
    }

    pub(crate) fn take(&self, right: Right, verb: &Verb) -> Result<Option<Guard>> {
        macro_rules! take {
            ($lock:expr, $wait:ident, $try:ident, $try_for:ident, $with:ident) => {
                match verb {
                    Verb::Wait => $lock.$wait().map(Some),
                    Verb::Try => $lock.$try(),
                    Verb::For(timeout) => $lock.$try_for(*timeout),
                    Verb::WithDeadline(_) | Verb::WithCancel(_) => {
                        $lock.$with(verb.options()).map(Some)
                    }
                }
            };
            ($lock:expr) => {
                take!($lock, lock, try_lock, try_lock_for, lock_with)
            };
        }
        Ok(match (self, right) {
            (Lock::Mutex(lock), _) => take!(lock)?.map(Guard::Mutex),
            (Lock::SemaphoreMutex(lock), _) => take!(lock)?.map(Guard::SemaphoreMutex),
            (Lock::SimpleMutex(lock), _) => take!(lock)?.map(Guard::SimpleMutex),
            (Lock::Multi(lock), _) => take!(lock)?.map(Guard::Multi),
            (Lock::Election(lock), _) => take!(
                lock,
                campaign,
                try_campaign,
                try_campaign_for,
                campaign_with
            )?
            .map(Guard::Leader),
            (Lock::Once(job), _) => {
                match take!(job, begin, try_begin, try_begin_for, begin_with)? {
                    Some(Begun::Run(run)) => Some(Guard::Run(Box::new(run))),
                    Some(Begun::Done(_)) | None => None,
                }
            }
            (Lock::Rw(lock), Right::Shared) => {
                take!(lock, read, try_read, try_read_for, read_with)?.map(Guard::Read)
            }
            (Lock::Rw(lock), _) => {
                take!(lock, write, try_write, try_write_for, write_with)?.map(Guard::Write)
            }
            (Lock::Semaphore(lock), Right::Permits(count @ 2..)) => match verb {
                Verb::Wait => Some(lock.acquire_many(count)?),
                Verb::Try => lock.try_acquire_many(count)?,
                _ => Some(lock.acquire_many_with(count, verb.options())?),
            }
            .map(Guard::Permit),
            (Lock::Semaphore(lock), _) => {
                take!(lock, acquire, try_acquire, try_acquire_for, acquire_with)?.map(Guard::Permit)
            }
        })
    }
}

/// A hold of any lock.
pub(crate) enum Guard {
    Mutex(MutexGuard),
    SemaphoreMutex(SemaphoreMutexGuard),
    SimpleMutex(SimpleMutexGuard),
    Read(RwReadGuard),
    Write(RwWriteGuard),
    Permit(Permit),
    Multi(MultiLockGuard),
    Leader(Leadership),
    Run(Box<JobRun>),
}

macro_rules! each {
    ($guard:expr, $held:ident => $what:expr, multi $multi:ident => $of_multi:expr) => {
        match $guard {
            Guard::Mutex($held) => $what,
            Guard::SemaphoreMutex($held) => $what,
            Guard::SimpleMutex($held) => $what,
            Guard::Read($held) => $what,
            Guard::Write($held) => $what,
            Guard::Permit($held) => $what,
            Guard::Leader($held) => $what,
            Guard::Run($held) => $what,
            Guard::Multi($multi) => $of_multi,
        }
    };
}

impl Guard {
    /// The state in the words of the history.
    pub(crate) fn state(&self) -> &'static str {
        match each!(self, held => held.state(), multi held => held.state()) {
            LockState::Held => "held",
            LockState::Suspect => "suspect",
            LockState::Lost => "lost",
        }
    }

    pub(crate) fn lost(&self) -> Receiver<LossReason> {
        each!(self, held => held.lost().clone(), multi held => held.lost().clone())
    }

    /// Our node; a dash where there are several.
    pub(crate) fn node(&self) -> &str {
        each!(self, held => held.path(), multi _held => "-")
    }

    /// The fencing token; none where holders do not exclude each other, or it cannot be learnt now.
    pub(crate) fn token(&self) -> Option<String> {
        match self {
            Guard::Read(_) | Guard::Permit(_) => None,
            Guard::Multi(held) => Some((*held.fencing_tokens().ok()?.first()?)?.to_string()),
            Guard::Mutex(held) => Some(held.fencing_token().ok()?.to_string()),
            Guard::SemaphoreMutex(held) => Some(held.fencing_token().ok()?.to_string()),
            Guard::SimpleMutex(held) => Some(held.fencing_token().ok()?.to_string()),
            Guard::Write(held) => Some(held.fencing_token().ok()?.to_string()),
            Guard::Leader(held) => Some(held.fencing_token().ok()?.to_string()),
            Guard::Run(held) => Some(held.fencing_token().ok()?.to_string()),
        }
    }

    /// The period and the attempt of a job's run.
    pub(crate) fn run(&self) -> Option<(i64, u32)> {
        match self {
            Guard::Run(run) => Some((run.period()?.number(), run.record().attempt())),
            _ => None,
        }
    }

    pub(crate) fn can_downgrade(&self) -> bool {
        matches!(self, Guard::Write(_))
    }

    /// From alone to shared. The guard itself comes back where that failed.
    pub(crate) fn downgrade(self) -> std::result::Result<Self, (Self, Error)> {
        match self {
            Guard::Write(held) => match held.downgrade() {
                Ok(held) => Ok(Guard::Read(held)),
                Err(failed) => {
                    let (held, error) = failed.into_parts();
                    Err((Guard::Write(held), error))
                }
            },
            other => Ok(other),
        }
    }

    /// Gives back and says how that went.
    pub(crate) fn unlock(self) -> Result<()> {
        match self {
            Guard::Mutex(held) => held.unlock(),
            Guard::SemaphoreMutex(held) => held.unlock(),
            Guard::SimpleMutex(held) => held.unlock(),
            Guard::Read(held) => held.unlock(),
            Guard::Write(held) => held.unlock(),
            Guard::Permit(held) => held.release(),
            Guard::Multi(held) => held.unlock(),
            Guard::Run(held) => held.done(),
            Guard::Leader(held) => resign(held),
        }
    }
}

/// Steps down on another thread, with a worker that ends its step before it goes.
fn resign(held: Leadership) -> Result<()> {
    let worker = held.worker();
    thread::scope(|scope| {
        scope.spawn(move || {
            let why = worker.lost().recv();
            assert!(why.is_ok(), "the worker of a leader that resigns is told");
            thread::sleep(A_STEP);
        });
        let resigns = scope.spawn(|| held.resign());
        resigns.join().expect("it does not panic")
    })
}

/// Follows who leads until `rests`, if it is an election: as long as there is contact, no earlier
/// term comes after a later one.
pub(crate) fn watch(lock: &Lock, rests: &AtomicBool) {
    let Lock::Election(election) = lock else {
        return;
    };
    let mut leaders = None;
    let mut last = None;
    while !rests.load(Ordering::SeqCst) {
        let Some(leaders) = &leaders else {
            // The nemesis may be at it.
            let begun = election.leaders();
            leaders = begun
                .inspect_err(|error| eprintln!("torture worker: {error}"))
                .ok();
            continue;
        };
        match leaders.recv_timeout(A_STEP) {
            Ok(WhoLeads::Leader(leader)) => {
                let before = last.replace(leader.term());
                assert!(before <= last, "{leader} came after term {before:?}");
            }
            Ok(WhoLeads::Unknown) => last = None,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("the client is open"),
        }
    }
}

/// Why a call gave nothing, in one word.
pub(crate) fn reason(error: &Error) -> &'static str {
    let reasons = [
        (error.is_timeout(), "timeout"),
        (error.is_cancelled(), "cancelled"),
        (error.is_lock_lost(), "lock-lost"),
        (error.is_session_lost(), "session-lost"),
        (error.is_connection_loss(), "connection-loss"),
        (error.is_closed(), "closed"),
        (error.is_would_deadlock(), "would-deadlock"),
        (error.is_invalid(), "invalid"),
    ];
    let found = reasons.into_iter().find(|(is, _)| *is);
    found.map_or("other", |(_, reason)| reason)
}
