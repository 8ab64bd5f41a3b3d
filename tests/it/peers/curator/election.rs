//! One election for both: Curator's `LeaderLatch`.

use std::thread;

use testbed::{Curator, wait_until};
use zklock::{Client, Election, LeaderChanges, WhoLeads};

use super::{CURATORS, SECTION, SHORT, curator};
use crate::fixtures::{SOON, children, client, server, wait_for_children};
use crate::history::{History, OURS, assert_disjoint, count, turns};

const ROUNDS: usize = 30;

fn election(client: &Client, path: &str) -> Election {
    let builder = Election::builder(client, path).id("ours");
    builder.build().expect("a good path")
}

#[test]
fn we_lead_after_curator_has_resigned() {
    let path = "/curator/latch/holds";
    let (mut curator, client) = (curator(), client());
    let election = election(&client, path);
    curator.tell(&format!("latch l {path} theirs"));
    curator.tell("stand l");
    curator.tell("lead l");
    let curators = children(server(), path);
    assert!(election.try_campaign().expect("answers").is_none());
    assert!(election.try_campaign_for(SHORT).expect("answers").is_none());
    wait_until("our node is gone", SOON, || {
        children(server(), path) == curators
    });
    let leader = election.leader().expect("answers").expect("Curator leads");
    assert_eq!(leader.id(), "theirs");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| election.campaign().expect("its turn"));
        wait_for_children(server(), path, 2);
        assert!(!waiter.is_finished());
        assert_eq!(curator.say("candidates l"), "theirs ours");
        curator.tell("resign l");
        let leadership = waiter.join().expect("no panic");
        let term = leadership.fencing_token().expect("known");
        assert!(leader.term() < term);
    });
    wait_for_children(server(), path, 0);
}

#[test]
fn curator_leads_after_we_have_resigned() {
    let path = "/curator/latch/waits";
    let (mut curator, client) = (curator(), client());
    let election = election(&client, path);
    let leadership = election.campaign().expect("nobody else");
    let worker = leadership.worker();
    curator.tell(&format!("latch l {path} theirs"));
    curator.tell("stand l");
    wait_for_children(server(), path, 2);
    assert_eq!(curator.say("leads l"), "no");
    assert_eq!(curator.say("leader l"), "ours");
    curator.command("lead l");
    assert!(
        leadership
            .resign_for(SHORT)
            .is_err_and(|late| late.is_timeout())
    );
    assert!(!curator.has_answered(), "a worker of ours is at it");
    drop(worker);
    curator.done();
    assert_eq!(curator.say("leads l"), "yes");
    assert!(election.try_campaign().expect("answers").is_none());
    // Its node goes in the background.
    curator.tell("resign l");
    assert!(election.try_campaign_for(SOON).expect("answers").is_some());
    wait_for_children(server(), path, 0);
}

#[track_caller]
fn next(leaders: &LeaderChanges) -> String {
    match leaders.recv_timeout(SOON).expect("told") {
        WhoLeads::Leader(leader) => leader.id().into_owned(),
        other => other.to_string(),
    }
}

#[test]
fn who_only_watches_hears_of_curators_leaders() {
    let path = "/curator/latch/watched";
    let (mut curator, client) = (curator(), client());
    let leaders = election(&client, path).leaders().expect("answers");
    assert_eq!(next(&leaders), "nobody leads");
    let stand = |curator: &mut Curator, name: &str| {
        curator.tell(&format!("latch {name} {path} {name}"));
        curator.tell(&format!("stand {name}"));
    };
    stand(&mut curator, "a");
    curator.tell("lead a");
    assert_eq!(next(&leaders), "a");
    stand(&mut curator, "b");
    wait_for_children(server(), path, 2);
    curator.tell("resign a");
    assert_eq!(next(&leaders), "b");
    curator.tell("resign b");
    assert_eq!(next(&leaders), "nobody leads");
}

#[test]
fn our_terms_and_curators_are_disjoint() {
    let path = "/curator/latch/history";
    let history = History::new();
    let (mut curator, clients) = (curator(), [client(), client()]);
    let [ours, blocker] = clients.each_ref().map(|client| election(client, path));
    // Until both sides stand: otherwise one could be done before the other began.
    let leadership = blocker.campaign().expect("nobody else");
    thread::scope(|scope| {
        curator.command(&format!(
            "campaign {path} {ROUNDS} 1 {}",
            history.path().display()
        ));
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                // Bounded, because a Curator that failed may lead still.
                let leadership = ours.try_campaign_for(SOON).expect("answers");
                let leadership = leadership.expect("its turn");
                history.record(SECTION, "alone");
                leadership.resign().expect("ours");
            }
        });
        wait_for_children(server(), path, 3);
        drop(leadership);
        curator.done();
    });
    let sections = history.sections();
    let done = (count(&sections, CURATORS), count(&sections, OURS));
    assert_eq!(done, (ROUNDS, ROUNDS));
    assert_disjoint(&sections);
    let turns = turns(&sections);
    assert!(turns > ROUNDS / 4, "they took turns {turns} times");
    wait_for_children(server(), path, 0);
}
