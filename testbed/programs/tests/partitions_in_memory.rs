//! The troubles of partitions.rs, all settings of them, on the ensemble in memory: the same rules, and a
//! tenth of the time.

use std::thread;

use testbed_programs::partition::{Case, Outcome, Prize, Servers, Trouble, table};

/// Session timeouts and `syncLimit`s in ticks, as `scripts/partitions` has them.
const SETTINGS: [(u32, u32); 4] = [(4, 3), (4, 10), (10, 5), (10, 15)];

#[track_caller]
fn assert_told_before(trouble: Trouble) {
    assert_told(Prize::Mutex, trouble);
}

#[track_caller]
fn assert_told(prize: Prize, trouble: Trouble) {
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let plays = SETTINGS.map(|(session, sync_limit)| {
            scope.spawn(move || {
                let servers = Servers::in_memory(sync_limit);
                let case = Case {
                    trouble,
                    prize,
                    session: servers.tick() * session,
                    sync_limit,
                };
                case.run(&servers, "/partition")
            })
        });
        plays
            .into_iter()
            .flat_map(|play| play.join().expect("no panic"))
            .collect()
    });
    let broken = |outcome: &Outcome| outcome.two_holders_for().is_some() || outcome.is_void();
    assert!(!outcomes.iter().any(broken), "\n{}", table(&outcomes));
}

#[test]
fn a_holder_is_told_before_when_its_follower_is_cut_off() {
    assert_told_before(Trouble::FollowerCutOff);
}

#[test]
fn a_leaders_workers_are_told_before_the_next_one_leads() {
    assert_told(Prize::Leadership, Trouble::FollowerCutOff);
}

#[test]
fn a_holder_is_told_before_when_its_follower_is_not_heard() {
    assert_told_before(Trouble::FollowerMuted);
}

#[test]
fn a_holder_is_told_before_when_its_follower_hears_nobody() {
    assert_told_before(Trouble::FollowerDeafened);
}

#[test]
fn a_holder_is_told_before_when_its_follower_is_stopped() {
    assert_told_before(Trouble::FollowerStopped);
}

#[test]
fn a_holder_is_told_before_when_its_follower_is_killed_after_an_answer() {
    assert_told_before(Trouble::FollowerKilledAfterAnswer);
}

#[test]
fn a_holder_is_told_before_when_the_leader_is_replaced() {
    assert_told_before(Trouble::LeaderReplaced);
}

#[test]
fn a_holder_is_told_before_when_its_leader_is_cut_off() {
    assert_told_before(Trouble::LeaderCutOff);
}

#[test]
fn a_holder_is_told_before_when_its_leader_is_stopped_and_continued() {
    assert_told_before(Trouble::LeaderStopped);
}

#[test]
fn a_holder_is_told_before_when_its_leader_is_stopped_and_cut_off_when_continued() {
    assert_told_before(Trouble::LeaderStoppedThenCutOff);
}
