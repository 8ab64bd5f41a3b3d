use super::*;
use std::sync::Arc;

use crate::link::clock::{Clock, ManualClock};
use crate::link::epoch::{Epoch, Granted};

const T: Duration = Duration::from_secs(32);

fn at(seconds: u64) -> Moment {
    Moment::from_nanos(1).plus(Duration::from_secs(1_000 + seconds))
}

fn begun(sent_at: Moment) -> Lease {
    Lease::new(T, sent_at, false)
}

fn epoch() -> Arc<Epoch> {
    epoch_on(Clock::default(), T, at(0))
}

fn epoch_on(clock: Clock, timeout: Duration, sent_at: Moment) -> Arc<Epoch> {
    let granted = Granted {
        session_id: 100,
        timeout,
        sent_at,
    };
    Arc::new(Epoch::begun(1, granted, clock, false))
}

fn assumed(seconds: u64) -> Bases {
    Bases {
        assumed: Some(at(seconds)),
        proven: None,
    }
}

fn proven(seconds: u64) -> Bases {
    Bases {
        assumed: Some(at(seconds)),
        proven: Some(at(seconds)),
    }
}

#[test]
fn ends_a_margin_before_the_timeout() {
    let lease = begun(at(0));
    assert_eq!(lease.ends(), Some(at(31)));
    let last = Moment::from_nanos(at(31).nanos() - 1);
    assert!(lease.proven(last) && lease.alive(last));
    assert_eq!(lease.remaining(last), Duration::from_nanos(1));
    assert!(!lease.proven(at(31)));
}

#[test]
fn an_answer_extends_it_from_the_base() {
    let lease = begun(at(0));
    assert!(lease.renewed(proven(5), at(6)));
    assert!(lease.proven(at(35)));
    // One that is older and comes later takes nothing away.
    assert!(lease.renewed(proven(0), at(7)));
    assert_eq!(lease.remaining(at(7)), Duration::from_secs(29));
}

#[test]
fn a_late_answer_does_not_break_the_seal() {
    let lease = begun(at(0));
    assert!(!lease.alive(at(31)));
    assert!(!lease.renewed(proven(31), at(31)));
    assert!(!lease.alive(at(0)));
    assert_eq!(
        (lease.ends(), lease.remaining(at(0))),
        (None, Duration::ZERO)
    );
}

#[test]
fn an_answer_after_the_lapse_seals_it() {
    for bases in [assumed(40), proven(40), Bases::default()] {
        let lease = begun(at(0));
        assert!(!lease.renewed(bases, at(41)));
        assert_eq!(lease.ends(), None);
    }
}

#[test]
fn what_is_sealed_stays_sealed() {
    let lease = begun(at(0));
    lease.seal();
    assert!(!lease.renewed(proven(1), at(1)));
    assert!(!lease.resumed(T, at(1), at(1)));
    assert!(!lease.alive(at(0)) && !lease.proven(at(0)));
}

/// A renewal looks at the clock, another thread seals, and only then the renewal comes to store.
#[test]
fn a_renewal_that_looked_in_time_does_not_break_the_seal() {
    let lease = begun(at(0));
    assert!(lease.alive(at(30)));
    assert!(!lease.alive(at(31)));
    for base in [&lease.assumed, &lease.proven] {
        assert!(!raise(base, at(30)));
        assert_eq!(base.load(Ordering::SeqCst), SEALED);
    }
}

/// A look takes a base for lapsed, and a renewal is faster than its seal: what is judged is what
/// stands there then.
#[test]
fn a_seal_is_set_on_the_base_that_was_judged() {
    let lease = begun(at(0));
    assert!(raise(&lease.assumed, at(10)));
    assert!(lease.stands_at(&lease.assumed, at(31)));
    assert!(!lease.stands_at(&lease.proven, at(31)));
    assert_eq!(lease.proven.load(Ordering::SeqCst), SEALED);
}

/// As while another thread is sealing: whichever word it has reached.
#[test]
fn one_sealed_word_is_enough() {
    for half in 0..2 {
        let lease = begun(at(0));
        [&lease.assumed, &lease.proven][half].store(SEALED, Ordering::SeqCst);
        assert!(!lease.alive(at(1)) && !lease.proven(at(1)));
        assert_eq!(
            (lease.ends(), lease.remaining(at(1))),
            (None, Duration::ZERO)
        );
        assert!(!lease.renewed(proven(1), at(1)));
    }
}

#[test]
fn an_idle_session_lives_by_what_is_assumed() {
    let lease = begun(at(0));
    assert!(lease.renewed(assumed(20), at(21)));
    assert_eq!(lease.ends(), Some(at(51)));
    assert!(!lease.proven(at(40)) && lease.alive(at(40)));
    // Nobody relied on it: the create of an acquire proves it again.
    assert!(lease.renewed(proven(20), at(41)));
    assert_eq!(lease.remaining(at(41)), Duration::from_secs(10));
    assert!(!lease.alive(at(51)));
}

#[test]
fn a_session_with_a_node_ends_with_what_is_proven() {
    let epoch = epoch();
    let lease = epoch.lease();
    let node = epoch.node_stands("/a", at(1)).expect("proven");
    assert!(lease.wants_writes());
    assert!(lease.renewed(assumed(20), at(21)));
    assert_eq!(lease.ends(), Some(at(31)));
    assert!(lease.alive(at(30)) && !lease.alive(at(31)));
    drop(node);
    assert!(!lease.renewed(proven(30), at(31)));
}

/// A node that begins to stand where nothing is proven would end the session at the next look.
#[test]
fn no_node_begins_to_stand_on_an_assumption() {
    let epoch = epoch();
    let lease = epoch.lease();
    assert!(lease.renewed(assumed(20), at(21)));
    assert!(epoch.node_stands("/a", at(40)).is_none());
    assert!(!lease.wants_writes() && lease.alive(at(40)));
    let seeking = epoch.want_proof("/a");
    assert!(lease.wants_writes() && lease.alive(at(40)));
    assert!(lease.renewed(proven(20), at(41)));
    let node = epoch.node_stands("/a", at(41)).expect("proven now");
    drop(seeking);
    assert!(lease.wants_writes());
    drop(node);
    assert!(!lease.wants_writes());
}

#[test]
fn a_resume_is_an_assumption() {
    let lease = begun(at(0));
    assert!(lease.resumed(T, at(20), at(21)));
    assert_eq!(lease.ends(), Some(at(51)));
    assert_eq!(lease.remaining(at(21)), Duration::from_secs(10));
    assert!(lease.renewed(proven(20), at(22)));
    assert_eq!(lease.remaining(at(22)), Duration::from_secs(29));
}

#[test]
fn a_smaller_timeout_counts_from_its_grant_on() {
    let lease = begun(at(0));
    assert!(lease.resumed(T / 2, at(5), at(6)));
    assert_eq!(lease.remaining(at(6)), Duration::from_millis(9_500));
    assert_eq!(
        lease.ends(),
        Some(at(5).plus(Duration::from_millis(15_500)))
    );
    // A larger one later takes nothing back.
    assert!(lease.resumed(T, at(7), at(8)));
    assert_eq!(
        lease.ends(),
        Some(at(7).plus(Duration::from_millis(15_500)))
    );
}

#[test]
fn a_smaller_timeout_may_end_a_session_with_a_node_at_once() {
    let epoch = epoch();
    let _node = epoch.node_stands("/a", at(0)).expect("proven");
    assert!(!epoch.lease().resumed(T / 2, at(20), at(21)));
    assert_eq!(epoch.lease().ends(), None);
}

#[test]
fn a_monitor_looks_in_every_beat() {
    let lease = begun(at(0));
    let beat = Duration::from_secs(31) / 12;
    assert_eq!(lease.next_look(at(0)), Some(beat));
    assert_eq!(lease.next_look(at(30)), Some(Duration::from_secs(1)));
    lease.seal();
    assert_eq!(lease.next_look(at(0)), None);
}

/// The machine sleeps for longer than the timeout: the first look afterwards ends the session,
/// whatever was answered before, and what is read then from before the sleep revives nothing.
#[test]
fn a_sleep_of_the_machine_counts() {
    let clock = ManualClock::at(at(0));
    let epoch = epoch_on(Clock::Manual(clock.clone()), T, at(0));
    let lease = epoch.lease();
    let _node = epoch.node_stands("/a", epoch.now()).expect("proven");
    clock.advance(Duration::from_secs(1));
    assert!(lease.proven(epoch.now()));
    clock.advance(T);
    assert!(!lease.renewed(proven(1), epoch.now()));
    assert!(!lease.proven(epoch.now()));
}

/// One thread renews, one looks after the lapse and so seals it. Whatever the interleaving, what
/// anybody has seen over is never seen alive again.
#[test]
fn nobody_sees_it_alive_after_somebody_saw_it_over() {
    const ROUNDS: u32 = 100;
    let short = Duration::from_millis(1);
    for round in 0..ROUNDS {
        let clock = Clock::default();
        let begun = clock.now();
        let epoch = epoch_on(clock.clone(), short, begun);
        let lease = epoch.lease();
        // In every second round the proven lease decides, else the assumed one. (`None` if this
        // thread was held up for all of the lease.)
        let _node = epoch.node_stands("/a", begun).filter(|_| round % 2 == 0);
        let over = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let renewed = |base| {
                    let bases = Bases {
                        assumed: Some(base),
                        proven: Some(base).filter(|_| round % 3 != 0),
                    };
                    lease.renewed(bases, clock.now())
                };
                // Answers that come too late, more and more often.
                while renewed(clock.now()) {
                    let until = clock.now().plus(short * round / 50);
                    while clock.now() < until {
                        std::hint::spin_loop();
                    }
                }
                over.store(1, Ordering::SeqCst);
            });
            scope.spawn(|| {
                let end = begun.plus(short * 10);
                while clock.now() < end {
                    let before = over.load(Ordering::SeqCst);
                    let alive = lease.alive(clock.now());
                    assert!(!(alive && before == 1), "round {round}");
                    if !alive {
                        let late = Bases {
                            assumed: Some(clock.now()),
                            proven: Some(clock.now()),
                        };
                        assert!(!lease.renewed(late, clock.now()), "round {round}");
                        assert!(!lease.proven(begun), "round {round}");
                        return;
                    }
                }
                lease.seal();
            });
        });
    }
}
