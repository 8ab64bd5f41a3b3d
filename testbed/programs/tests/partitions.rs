//! Troubles between the servers of an ensemble. Only the leader ends a session, and the server that
//! a holder talks to need not know what the leader does: a follower that had lost its leader went
//! on answering, and two held one lock for 8.9 s.
//!
//! One setting of each trouble; `scripts/partitions` plays them all.

use std::time::Duration;

use testbed_programs::partition::{Case, Outcome, Prize, Servers, Trouble, table};

const T: Duration = Duration::from_secs(4);

/// Longer than the session timeout: a follower without a leader answers for longer than the leader
/// keeps the session.
const PATIENT: u32 = 10;

/// Shorter than it: another leads while the sessions still live.
const IMPATIENT: u32 = 3;

#[track_caller]
fn assert_told_before(trouble: Trouble, sync_limit: u32) {
    assert_told(Prize::Mutex, trouble, sync_limit);
}

#[track_caller]
fn assert_told(prize: Prize, trouble: Trouble, sync_limit: u32) {
    let servers = Servers::apache(sync_limit);
    let case = Case {
        trouble,
        prize,
        session: T,
        sync_limit,
    };
    let outcomes = case.run(&servers, "/partition");
    let broken = |outcome: &Outcome| outcome.two_holders_for().is_some() || outcome.is_void();
    assert!(!outcomes.iter().any(broken), "\n{}", table(&outcomes));
}

#[test]
fn a_holder_is_told_before_when_its_follower_is_cut_off() {
    assert_told_before(Trouble::FollowerCutOff, PATIENT);
}

#[test]
fn a_leaders_workers_are_told_before_the_next_one_leads() {
    assert_told(Prize::Leadership, Trouble::FollowerCutOff, PATIENT);
}

#[test]
fn a_holder_is_told_before_when_its_follower_is_not_heard() {
    assert_told_before(Trouble::FollowerMuted, PATIENT);
}

#[test]
fn a_holder_is_told_before_when_its_follower_hears_nobody() {
    assert_told_before(Trouble::FollowerDeafened, PATIENT);
}

#[test]
fn a_holder_is_told_before_when_its_follower_is_stopped() {
    assert_told_before(Trouble::FollowerStopped, PATIENT);
}

#[test]
fn a_holder_is_told_before_when_its_follower_is_killed_after_an_answer() {
    assert_told_before(Trouble::FollowerKilledAfterAnswer, PATIENT);
}

#[test]
fn a_holder_is_told_before_when_the_leader_is_replaced() {
    assert_told_before(Trouble::LeaderReplaced, IMPATIENT);
}

#[test]
fn a_holder_is_told_before_when_its_leader_is_cut_off() {
    assert_told_before(Trouble::LeaderCutOff, IMPATIENT);
}

#[test]
fn a_holder_is_told_before_when_its_leader_is_stopped_and_continued() {
    assert_told_before(Trouble::LeaderStopped, IMPATIENT);
}

#[test]
fn a_holder_is_told_before_when_its_leader_is_stopped_and_cut_off_when_continued() {
    assert_told_before(Trouble::LeaderStoppedThenCutOff, IMPATIENT);
}
