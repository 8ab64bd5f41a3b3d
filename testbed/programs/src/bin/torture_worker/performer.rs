//! A thread that takes a lock again and again, and notes all it knows about it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, bounded};
use zklock::CancelToken;

use crate::locks::{self, Guard, Lock, Right, Verb};
use testbed_programs::history::{self, History};
use testbed_programs::random::Random;

/// How often a holder looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Within this a loss that `state()` knows must also be told by `lost()`.
const TOLD_WITHIN: Duration = Duration::from_secs(5);

/// What all threads of the process share.
pub(crate) struct Ground<'a> {
    pub(crate) lock: &'a Lock,
    pub(crate) history: &'a History,
    pub(crate) session: Duration,
    /// How many in a hundred.
    pub(crate) long_sections: u64,
    pub(crate) rests: &'a AtomicBool,
    pub(crate) next_id: &'a AtomicU64,
}

pub(crate) struct Performer<'a> {
    pub(crate) who: String,
    pub(crate) ground: &'a Ground<'a>,
    pub(crate) random: Random,
}

macro_rules! note {
    ($performer:expr, $($event:tt)*) => {
        $performer.ground.history.note(&$performer.who, format_args!($($event)*))
    };
}

impl<'a> Performer<'a> {
    pub(crate) fn run(&mut self) {
        while !self.ground.rests.load(Ordering::SeqCst) {
            if let Some((id, guard)) = self.acquire() {
                self.hold(id, guard, 0);
            }
            let pause = match self.random.below(10) {
                0..6 => Duration::ZERO,
                6..9 => Duration::from_millis(20),
                _ => Duration::from_millis(400),
            };
            thread::sleep(self.random.between(Duration::ZERO, pause));
        }
    }

    fn next_id(&self) -> u64 {
        self.ground.next_id.fetch_add(1, Ordering::SeqCst)
    }

    /// One call, by a verb of the dice's choice.
    fn acquire(&mut self) -> Option<(u64, Guard)> {
        let time = self.random.between(Duration::ZERO, self.ground.session / 2);
        let verb = match self.random.below(10) {
            0 | 1 => Verb::Wait,
            2 | 3 => Verb::Try,
            4..7 => Verb::For(time),
            7 | 8 => Verb::WithDeadline(time),
            _ => Verb::WithCancel(CancelToken::new()),
        };
        let right = self.ground.lock.pick(&verb, &mut self.random);
        match &verb {
            Verb::WithCancel(token) => self.acquire_until_cancelled(right, &verb, token, time),
            Verb::Wait => self.call(self.next_id(), right, &verb, None),
            // It waits for nobody but the server.
            Verb::Try => self.call(self.next_id(), right, &verb, Some(self.patience())),
            Verb::For(time) | Verb::WithDeadline(time) => {
                // A zero time is a try.
                let bound = if time.is_zero() {
                    self.patience()
                } else {
                    *time
                };
                self.call(self.next_id(), right, &verb, Some(bound))
            }
        }
    }

    /// For how long a call may wait for a server that is silent.
    fn patience(&self) -> Duration {
        self.ground.session * 2 / 3
    }

    fn acquire_until_cancelled(
        &self,
        right: Right,
        verb: &Verb,
        token: &CancelToken,
        after: Duration,
    ) -> Option<(u64, Guard)> {
        let id = self.next_id();
        let (returned, returns) = bounded::<()>(0);
        thread::scope(|scope| {
            scope.spawn(move || {
                if returns.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
                    note!(self, "cancel id={id}");
                    token.cancel();
                }
            });
            let guard = self.call(id, right, verb, None);
            drop(returned);
            guard
        })
    }

    fn call(
        &self,
        id: u64,
        right: Right,
        verb: &Verb,
        bound: Option<Duration>,
    ) -> Option<(u64, Guard)> {
        let name = verb.name();
        match bound {
            Some(bound) => note!(
                self,
                "call id={id} verb={name} bound_ms={}",
                bound.as_millis()
            ),
            None => note!(self, "call id={id} verb={name}"),
        }
        match self.ground.lock.take(right, verb) {
            Ok(Some(guard)) => {
                note!(self, "got id={id} right={right} node={}", guard.node());
                Some((id, guard))
            }
            Ok(None) => {
                note!(self, "none id={id} why=busy");
                None
            }
            Err(error) => {
                note!(self, "none id={id} why={}", locks::reason(&error));
                None
            }
        }
    }

    /// Holds for a while, looking all the time, and gives back.
    fn hold(&mut self, id: u64, guard: Guard, depth: u32) {
        let mut lost = self.look(id, &guard);
        if let Some((period, attempt)) = guard.run() {
            note!(self, "ran id={id} period={period} attempt={attempt}");
        }
        // What a run's period is done by is told by its token.
        if (guard.run().is_some() || self.random.percent(60))
            && let Some(token) = guard.token()
        {
            note!(self, "token id={id} value={token}");
        }
        let until = Instant::now() + self.section();
        let told = guard.lost();
        let mut is_told = false;
        while !lost && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            if let Ok(reason) = told.recv_timeout(LOOK_EVERY.min(left)) {
                note!(self, "told id={id} why={reason:?}");
                is_told = true;
            }
            lost = self.look(id, &guard);
        }
        if !lost && depth < 2 && self.ground.lock.is_reentrant() && self.random.percent(15) {
            self.enter_again(depth);
            lost = self.look(id, &guard);
        }
        if lost && !is_told {
            match told.recv_timeout(TOLD_WITHIN) {
                Ok(reason) => note!(self, "told id={id} why={reason:?}"),
                // Another guard of the same tenure may have taken the word.
                Err(RecvTimeoutError::Disconnected) => note!(self, "told id={id} why=-"),
                Err(RecvTimeoutError::Timeout) => note!(self, "untold id={id}"),
            }
        }
        if !lost && guard.can_downgrade() && self.random.percent(40) {
            self.downgrade(id, guard);
        } else {
            self.give(id, guard);
        }
    }

    fn section(&mut self) -> Duration {
        let most = match self.random.below(100) {
            // Long enough for a session to end in it.
            long if long < self.ground.long_sections => self.ground.session * 4,
            others if others < 80 => Duration::from_millis(20),
            _ => Duration::from_millis(200),
        };
        self.random.between(Duration::ZERO, most)
    }

    fn enter_again(&mut self, depth: u32) {
        let bound = Some(self.patience());
        if let Some((id, guard)) = self.call(self.next_id(), Right::Alone, &Verb::Try, bound) {
            self.hold(id, guard, depth + 1);
        }
    }

    fn downgrade(&mut self, id: u64, guard: Guard) {
        let shared = self.next_id();
        self.look(id, &guard);
        note!(self, "call id={shared} verb=downgrade");
        match guard.downgrade() {
            Ok(guard) => {
                note!(
                    self,
                    "got id={shared} right={} node={}",
                    Right::Shared,
                    guard.node()
                );
                note!(self, "given id={id} why=downgraded");
                self.hold(shared, guard, 0);
            }
            Err((guard, error)) => {
                note!(self, "none id={shared} why={}", locks::reason(&error));
                self.give(id, guard);
            }
        }
    }

    /// Returns whether it is lost. The time before the look is the one that counts: what is said is
    /// true at some moment after it.
    fn look(&self, id: u64, guard: &Guard) -> bool {
        let began = history::now();
        let state = guard.state();
        note!(self, "look id={id} state={state} began={began}");
        state == "lost"
    }

    fn give(&mut self, id: u64, guard: Guard) {
        self.look(id, &guard);
        let bound = self.patience();
        note!(self, "give id={id} bound_ms={}", bound.as_millis());
        let how = if self.random.percent(50) {
            drop(guard);
            "dropped"
        } else {
            guard
                .unlock()
                .as_ref()
                .map_or_else(locks::reason, |()| "unlocked")
        };
        note!(self, "given id={id} why={how}");
    }
}
