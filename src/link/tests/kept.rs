//! What a held session is kept over, and when it is given up, on a clock that the test moves.
//!
//! The link is the real one, with its threads. What it waits for in real time it only waits for in
//! vain: the test moves the clock to the next moment at which the link or the server has something
//! to do, rouses the link, and waits for what comes of it. So every time here is exact, and none
//! is measured.

use super::probes::{checked, epoch_of, next_check, stands};
use super::*;
use crate::link::clock::{ManualClock, Moment};
use crate::link::core::Waits;
use crate::link::core::chain::ProbeIntervals;
use crate::link::epoch::RelyOnLease;

/// The shortest for which the promises are made.
const T: Duration = Duration::from_secs(4);
/// From a request to its answer.
const ROUND_TRIP: Duration = Duration::from_millis(5);
const NANO: Duration = Duration::from_nanos(1);
/// Of the session that the server grants.
const SESSION: i64 = 7;
/// Twice as many probes as any base is old.
const SETTLED: u32 = 14;
/// Into so many a probe's distance is cut, to begin the trouble at each.
const PHASES: u32 = 8;

/// What becomes of that which was said while the server was silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// It is answered at the end: the server stood still.
    Stalled,
    /// It never is: the way to the server was cut, and only new connections get through.
    Lost,
}

/// A node stands, and nobody asks for anything: only probes go out.
struct Holder {
    clock: ManualClock,
    server: FakeServer,
    bench: Bench,
    _caller: Caller,
    served: Option<Served>,
    epoch: Arc<Epoch>,
    _node: RelyOnLease,
    /// The smallest that the session was granted.
    timeout: Duration,
    /// The M by which a base is looked for here.
    ping_within: Duration,
    /// When the probes of this connection were sent and answered.
    answers: Vec<(Moment, Moment)>,
}

impl Holder {
    /// In an ensemble whose tick is told, or M is T/3; after some quiet use.
    fn new(tick: Option<Duration>) -> Self {
        let clock = ManualClock::at(Moment::from_nanos(1_000_000_000_000));
        let setup = Setup {
            timeout: T,
            tick,
            clock: Clock::Manual(clock.clone()),
            ..Setup::default()
        };
        let server = FakeServer::start();
        let (bench, caller, served) = setup.connected(&server);
        let epoch = epoch_of(&bench);
        let node = stands(&epoch, "/a");
        let mut holder = Self {
            clock,
            server,
            bench,
            _caller: caller,
            served: Some(served),
            epoch,
            _node: node,
            timeout: T,
            ping_within: tick.unwrap_or(T / 3),
            answers: Vec::new(),
        };
        holder.goes_on();
        holder
    }

    fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Goes on to a moment, at which the link looks what is to be done.
    fn at(&self, moment: Moment) {
        assert!(moment >= self.now(), "time goes on");
        self.clock.advance(moment.since(self.now()));
        let server = self.bench.link.wire.state.lock().server.clone();
        if let Some(server) = server {
            server.stream.wake();
        }
    }

    fn later(&self, by: Duration) {
        self.at(self.now().plus(by));
    }

    /// When the next probe is due, and when an answer will have been waited for in vain.
    fn next_looks(&self) -> (Moment, Option<Moment>) {
        let deadline = Instant::now() + SOON;
        loop {
            let state = self.bench.link.wire.state.lock();
            let chain = &state.core.chain();
            let due = chain.next_probe(true).due;
            match state.core.waits_since() {
                Waits::Since(taken) => return (due, Some(taken.plus(chain.patience()))),
                Waits::ForNothing => return (due, None),
                // The server has it; the thread that sent it has not said so yet.
                Waits::ForTheKernel => {}
            }
            drop(state);
            assert!(Instant::now() < deadline, "the kernel takes a probe");
            std::thread::yield_now();
        }
    }

    fn served(&mut self) -> &mut Served {
        self.served.as_mut().expect("connected")
    }

    /// Goes on to the next probe. Returns its number.
    fn probe(&mut self) -> i32 {
        self.at(self.next_looks().0);
        next_check(self.served()).0
    }

    /// All that is in flight is answered now.
    fn answer(&mut self, probes: &[(Moment, i32)]) {
        let now = self.now();
        for (sent_at, xid) in probes {
            self.served().reply_with(*xid, 1, &checked(0));
            self.answers.push((*sent_at, now));
        }
        let deadline = Instant::now() + SOON;
        while self.bench.link.wire.state.lock().core.waits_since() != Waits::ForNothing {
            assert!(Instant::now() < deadline, "the answers are taken");
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Quiet use: whatever was before, the session is the one that it was.
    fn goes_on(&mut self) {
        for _ in 0..SETTLED {
            let xid = self.probe();
            let sent_at = self.now();
            self.later(ROUND_TRIP);
            self.answer(&[(sent_at, xid)]);
            assert!(self.epoch.lease().proven(self.now()));
        }
        assert!(Arc::ptr_eq(&self.epoch, &epoch_of(&self.bench)));
        assert!(self.bench.events.is_empty(), "nothing was told");
    }

    /// The rule of the chain over all that was answered on this connection.
    fn proven_base(&self) -> Moment {
        let answers = &self.answers;
        let proves = |base: Moment, answered: Moment| {
            let mut second = answers
                .iter()
                .filter(|two| two.0 >= answered.plus(self.ping_within));
            second.any(|two| answers.iter().any(|three| three.0 >= two.1) && base < two.0)
        };
        let proven = answers.iter().filter(|one| proves(one.0, one.1));
        proven.map(|one| one.0).max().expect("quiet use proves")
    }

    /// The server says nothing until then.
    fn silent(&mut self, until: Moment, silence: Silence) {
        let mut unanswered = Vec::new();
        loop {
            let (due, overdue) = self.next_looks();
            let heals = silence == Silence::Stalled || unanswered.is_empty();
            if heals && until < overdue.map_or(due, |at| at.min(due)) {
                self.at(until);
                return self.answer(&unanswered);
            }
            if let Some(overdue) = overdue.filter(|at| *at <= due) {
                self.at(overdue);
                // One more probe may have gone out before.
                while self.served().0.receive().is_some() {}
                return self.broken(until, silence);
            }
            let xid = self.probe();
            unanswered.push((self.now(), xid));
        }
    }

    /// The connection breaks now, and no server resumes the session until then.
    fn broken(&mut self, until: Moment, silence: Silence) {
        self.served = None;
        self.bench.suspended();
        let mut limit = T / 12;
        loop {
            let (served, hello) = self.server.greet();
            assert_eq!(hello.session_id, SESSION);
            let gives_up = self.now().plus(limit);
            let heard = silence == Silence::Stalled && until < gives_up;
            if heard || until <= self.now() {
                self.at(until.max(self.now()));
                return self.resume(served);
            }
            self.at(gives_up);
            let why = self.bench.failure();
            assert!(why.contains("no answer in time"), "{why}");
            limit = (limit * 2).min(T * 2 / 3);
        }
    }

    /// The session goes on there, and a write proves it.
    fn resume(&mut self, mut served: Served) {
        served.grant(SESSION, self.timeout);
        let (epoch, resumed) = self.bench.connected();
        assert!(resumed && Arc::ptr_eq(&epoch, &self.epoch));
        self.served = Some(served);
        self.answers.clear();
        let sent_at = self.now();
        let (xid, path) = next_check(self.served());
        assert_eq!(
            path.as_deref(),
            Some("/a"),
            "a write that proves the resume"
        );
        self.later(ROUND_TRIP);
        self.answer(&[(sent_at, xid)]);
    }

    /// Goes on to one of the moments from an answer to the next. At the last one a probe is on its
    /// way back, and the base as old as it gets.
    fn phase(&mut self, phase: u32) {
        let (due, _) = self.next_looks();
        if phase == PHASES {
            self.probe();
            self.later(ROUND_TRIP - NANO);
        } else {
            self.later(due.since(self.now()) * phase / PHASES);
        }
    }

    /// Nobody answers any more: the lease stands to its end, and then the loss is told.
    fn expires(&mut self) {
        let ends = self.epoch.lease().ends().expect("alive");
        let (base, timeout) = (self.proven_base(), self.timeout);
        assert!(ends <= base.plus(timeout), "the servers may end it then");
        assert_eq!(ends, base.plus(timeout - timeout / 32), "and no earlier");
        self.clock.advance(ends.since(self.now()) - NANO);
        assert!(self.epoch.lease().proven(self.now()));
        self.later(NANO);
        if self.served.is_some() {
            self.bench.suspended();
        }
        assert!(Arc::ptr_eq(&self.bench.expired(), &self.epoch));
        assert!(!self.epoch.is_alive());
    }
}

/// Wherever between two probes it begins: the answers come in time, or the link has given the
/// connection up early enough to reach a server when the silence is over.
#[test]
fn silence_of_just_under_a_quarter_of_the_timeout_keeps_the_session() {
    for silence in [Silence::Stalled, Silence::Lost] {
        for phase in 0..=PHASES {
            let mut holder = Holder::new(None);
            holder.phase(phase);
            let until = holder.now().plus(T / 4 - ROUND_TRIP);
            holder.silent(until, silence);
            holder.goes_on();
        }
    }
}

/// For how long a break may last at the worst moment: until the lease ends that stands by the
/// oldest base. That one is replaced when the second probe after the one that confirms it is
/// answered.
fn longest_break(tick: Option<Duration>) -> Duration {
    let intervals = ProbeIntervals::of(T, tick);
    let confirming = (1..).find(|probes| {
        let sent = intervals.probe_after * *probes;
        sent >= ROUND_TRIP + intervals.ping_within
    });
    let probes = confirming.expect("some probe is late enough") + 2;
    T - T / 32 - intervals.probe_after * probes - ROUND_TRIP
}

/// A leader has died, and its followers have hung up. The base is up to six probes old then.
#[test]
fn a_break_whose_resume_is_answered_within_four_tenths_keeps_the_session() {
    for phase in 0..=PHASES {
        let mut holder = Holder::new(None);
        holder.phase(phase);
        let until = holder.now().plus(T * 2 / 5);
        holder.broken(until, Silence::Stalled);
        holder.goes_on();
    }
}

/// A base is proven sooner where PINGs are known to come sooner, and so is younger when the trouble
/// begins.
#[test]
fn a_session_is_kept_for_longer_where_the_tick_is_told() {
    let tick = Some(T / 10);
    assert!(longest_break(None) >= T * 42 / 100);
    assert!(longest_break(tick) >= T * 60 / 100);
    for tick in [None, tick] {
        let mut holder = Holder::new(tick);
        holder.phase(PHASES);
        let remaining = holder.epoch.lease().remaining(holder.now());
        assert_eq!(remaining, longest_break(tick) + NANO);
        // The write that proves the resume is answered just in time.
        let until = holder.now().plus(remaining - ROUND_TRIP - NANO);
        holder.broken(until, Silence::Stalled);
        holder.goes_on();
    }
}

#[test]
fn a_session_that_nobody_answers_for_is_lost_no_later_than_its_timeout_after_the_proven_base() {
    for phase in 0..=PHASES {
        let mut silent = Holder::new(None);
        silent.phase(phase);
        silent.expires();
        let mut broken = Holder::new(Some(T / 10));
        broken.phase(phase);
        broken.served = None;
        broken.bench.suspended();
        broken.expires();
    }
}

/// The leader counts by the timeout that it granted last.
#[test]
fn a_session_that_was_resumed_with_a_smaller_timeout_is_lost_by_that() {
    let mut holder = Holder::new(None);
    holder.timeout = T * 3 / 4;
    holder.ping_within = holder.timeout / 3;
    let now = holder.now();
    holder.broken(now, Silence::Stalled);
    holder.goes_on();
    holder.expires();
}
