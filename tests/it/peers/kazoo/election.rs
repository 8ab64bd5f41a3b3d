//! One election for both: kazoo's `Election`.

use std::thread;

use testbed::wait_until;
use zklock::{Client, Dialect, Election};

use super::{SECTION, SHORT, kazoo, tell};
use crate::fixtures::{SOON, children, client, server, wait_for_children};
use crate::history::{History, OURS, assert_disjoint, count, turns};

const ROUNDS: usize = 30;

fn election(client: &Client, path: &str) -> Election {
    let builder = Election::builder(client, path).dialect(Dialect::Kazoo);
    builder.id("ours").build().expect("a good path")
}

#[test]
fn we_lead_after_kazoo_has_resigned() {
    let path = "/kazoo/election/holds";
    let (mut kazoo, client) = (kazoo(), client());
    let election = election(&client, path);
    tell(&mut kazoo, &format!("election k {path} theirs"));
    tell(&mut kazoo, "stand k");
    tell(&mut kazoo, "lead k");
    let kazoos = children(server(), path);
    assert!(election.try_campaign().expect("answers").is_none());
    assert!(election.try_campaign_for(SHORT).expect("answers").is_none());
    wait_until("our node is gone", SOON, || {
        children(server(), path) == kazoos
    });
    let leader = election.leader().expect("answers").expect("kazoo leads");
    assert_eq!(leader.id(), "theirs");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| election.campaign().expect("its turn"));
        wait_for_children(server(), path, 2);
        assert!(!waiter.is_finished());
        assert_eq!(kazoo.say("contenders k"), r#"["theirs", "ours"]"#);
        tell(&mut kazoo, "resign k");
        let leadership = waiter.join().expect("no panic");
        assert!(leader.term() < leadership.fencing_token().expect("known"));
    });
    wait_for_children(server(), path, 0);
}

#[test]
fn kazoo_leads_after_we_have_resigned() {
    let path = "/kazoo/election/waits";
    let (mut kazoo, client) = (kazoo(), client());
    let election = election(&client, path);
    let leadership = election.campaign().expect("nobody else");
    let worker = leadership.worker();
    tell(&mut kazoo, &format!("election k {path} theirs"));
    tell(&mut kazoo, "stand k");
    wait_for_children(server(), path, 2);
    assert!(
        leadership
            .resign_for(SHORT)
            .is_err_and(|late| late.is_timeout())
    );
    assert_eq!(kazoo.say("leads? k"), "no", "a worker of ours is at it");
    drop(worker);
    tell(&mut kazoo, "lead k");
    assert!(election.try_campaign().expect("answers").is_none());
    tell(&mut kazoo, "resign k");
    assert!(election.try_campaign().expect("answers").is_some());
    wait_for_children(server(), path, 0);
}

#[test]
fn our_terms_and_kazoos_are_disjoint() {
    let path = "/kazoo/election/history";
    let history = History::new();
    let (mut kazoo, clients) = (kazoo(), [client(), client()]);
    let [ours, blocker] = clients.each_ref().map(|client| election(client, path));
    // Until both sides stand: otherwise one could be done before the other began.
    let leadership = blocker.campaign().expect("nobody else");
    thread::scope(|scope| {
        let history_file = history.path().display();
        kazoo.command(&format!("campaign {path} {ROUNDS} {history_file}"));
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                // Bounded, because a kazoo that failed may lead still.
                let leadership = ours.try_campaign_for(SOON).expect("answers");
                let leadership = leadership.expect("its turn");
                history.record(SECTION, "1");
                leadership.resign().expect("ours");
            }
        });
        wait_for_children(server(), path, 3);
        drop(leadership);
        assert_eq!(kazoo.answer(), "ok");
    });
    let sections = history.sections();
    let done = (count(&sections, "kazoo"), count(&sections, OURS));
    assert_eq!(done, (ROUNDS, ROUNDS));
    assert_disjoint(&sections);
    let turns = turns(&sections);
    assert!(turns > ROUNDS / 4, "they took turns {turns} times");
    wait_for_children(server(), path, 0);
}
