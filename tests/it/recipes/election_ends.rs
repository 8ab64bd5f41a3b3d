//! How a leader's time and a candidate's end: asked to, stuck, closed, refused.

use std::ops::ControlFlow;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use testbed::Proxy;
use testbed::raw::Flags;
use zklock::{
    CancelToken, Client, Election, LeaderWorker, LockState, LossReason, RetryPolicy, WhoLeads,
};

use crate::fixtures::{SOON, client, client_at, raw, server, wait_for_children};

const AN_HOUR: Duration = Duration::from_secs(3600);

fn patient(client: &Client, path: &str) -> Election {
    let builder = Election::builder(client, path).pause(AN_HOUR);
    builder.build().expect("a good path")
}

/// The request was written over the id, so nobody could read who led, and those who watch were told
/// of the same term again.
#[test]
fn a_leader_that_is_asked_to_step_down_keeps_its_id() {
    let path = "/election/asked-by-id";
    let clients = [client(), client()];
    let builder = Election::builder(&clients[0], path).id("host-8");
    let ours = builder.build().expect("a good path");
    let theirs = Election::new(&clients[1], path).expect("a good path");
    let leadership = ours.campaign().expect("nobody else");
    let before = theirs.leader().expect("answers").expect("one leads");
    let leader = theirs.participants().expect("answers").remove(0);
    assert!(theirs.revoke(&leader).expect("answers"));
    let asked = theirs.leader().expect("answers").expect("one leads");
    assert_eq!(asked.id(), "host-8");
    assert_eq!(WhoLeads::Leader(asked), WhoLeads::Leader(before));
    leadership.resign().expect("still ours");
}

/// It had been told that the leader steps down, and could hear nothing more: neither by its channel,
/// which tells once, nor by its state, which was `Lost` already.
#[test]
fn a_worker_hears_of_a_loss_during_its_last_step() {
    let path = "/election/last-step";
    let proxy = Proxy::start(server().addr());
    let (far, near) = (client_at(&proxy.connect_string()), client());
    let [ours, theirs] = [&far, &near].map(|client| {
        let election = Election::new(client, path);
        election.expect("a good path")
    });
    let leadership = ours.campaign().expect("nobody else");
    let worker = leadership.worker();
    drop(leadership);
    assert_eq!(worker.lost().recv_timeout(SOON), Ok(LossReason::Released));
    assert_eq!(worker.state(), LockState::Lost);
    assert_eq!(worker.leadership_state(), LockState::Held);
    let moment = Duration::from_millis(1);
    worker.ensure_for(moment).expect("the node stands");
    thread::scope(|scope| {
        // Where an assertion fails it goes, and the successor does not wait for ever.
        let worker = worker;
        let successor = scope.spawn(|| {
            let leadership = theirs.campaign().expect("its turn");
            (Instant::now(), leadership)
        });
        wait_for_children(server(), path, 2);
        assert!(worker.leadership_lost().is_empty());
        proxy.refuse();
        proxy.reset_all();
        for lost in [&worker, &worker.clone()].map(LeaderWorker::leadership_lost) {
            assert_eq!(lost.recv_timeout(SOON), Ok(LossReason::Session));
        }
        let heard = Instant::now();
        assert_eq!(worker.leadership_state(), LockState::Lost);
        let late = worker.ensure_for(moment);
        assert!(late.is_err_and(|error| error.is_lock_lost()));
        let (led, _leadership) = successor.join().expect("no panic");
        assert!(heard < led, "beside the next leader for {:?}", heard - led);
    });
}

/// It waited for a worker that was stuck, for ever.
#[test]
fn resigning_ends_when_the_client_is_closed() {
    let path = "/election/closed-stuck";
    let client = client();
    let election = Election::new(&client, path).expect("a good path");
    let leadership = election.campaign().expect("nobody else");
    let stuck = leadership.worker();
    let (tell, told) = channel();
    thread::spawn(move || tell.send(leadership.resign()));
    assert_eq!(stuck.lost().recv_timeout(SOON), Ok(LossReason::Released));
    client.close();
    let ended = told.recv_timeout(SOON).expect("it ends");
    assert!(ended.is_err_and(|error| error.is_lock_lost()));
}

/// Here the function that leads keeps a worker for longer than it leads.
#[test]
fn a_candidate_whose_worker_is_stuck_ends_when_the_client_is_closed() {
    let path = "/election/closed-kept";
    let client = client();
    let election = patient(&client, path);
    let (tell, told) = channel();
    thread::spawn(move || {
        let mut kept = None;
        let ended = election.serve(&CancelToken::new(), |leadership| {
            client.close();
            assert_eq!(leadership.lost().recv_timeout(SOON), Ok(LossReason::Closed));
            kept = Some(leadership.worker());
            ControlFlow::<()>::Continue(())
        });
        tell.send(ended)
    });
    let ended = told.recv_timeout(SOON).expect("it ends");
    assert!(ended.is_err_and(|error| error.is_closed()));
}

#[test]
fn closing_the_client_ends_a_pause() {
    let path = "/election/closed-pause";
    let client = client();
    let election = patient(&client, path);
    let (tell, told) = channel();
    let (leads, led) = channel();
    thread::spawn(move || {
        let ended = election.serve(&CancelToken::new(), |_| {
            leads.send(()).expect("waited for");
            ControlFlow::<()>::Continue(())
        });
        tell.send(ended)
    });
    led.recv_timeout(SOON).expect("it leads");
    wait_for_children(server(), path, 0);
    client.close();
    let ended = told.recv_timeout(SOON).expect("it ends");
    assert!(ended.is_err_and(|error| error.is_closed()));
}

/// The pause went by the clock: after an outage nobody stood, though the servers were back.
#[test]
fn a_candidate_stands_again_as_soon_as_an_outage_is_over() {
    let path = "/election/outage";
    let proxy = Proxy::start(server().addr());
    let retry = RetryPolicy::new().give_up_after(Duration::from_millis(50));
    let builder = Client::builder(&proxy.connect_string()).retry(retry);
    let client = builder.connect().expect("a server that works");
    let election = patient(&client, path);
    proxy.refuse();
    proxy.reset_all();
    let (tell, told) = channel();
    thread::spawn(move || {
        tell.send(election.serve(&CancelToken::new(), |_| ControlFlow::Break(())))
    });
    // An outage that is longer than a campaign's patience.
    let early = told.recv_timeout(Duration::from_millis(500));
    assert!(early.is_err(), "{early:?}");
    proxy.accept();
    let ended = told.recv_timeout(SOON).expect("it leads");
    assert_eq!(ended.expect("no error"), Some(()));
}

/// No node can be made below an ephemeral one, however often that is tried.
#[test]
fn a_candidate_that_is_refused_for_good_ends_with_an_error() {
    let mut owner = raw(server());
    let made = owner.create("/ephemeral-parent", b"", Flags::Ephemeral);
    made.expect("open to all");
    let election = patient(&client(), "/ephemeral-parent/leaders");
    let (tell, told) = channel();
    thread::spawn(move || {
        tell.send(election.serve(&CancelToken::new(), |_| ControlFlow::Break(())))
    });
    let ended = told.recv_timeout(SOON).expect("it ends");
    assert!(ended.is_err_and(|error| !error.is_connection_loss()));
}
