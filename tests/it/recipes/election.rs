//! The election: one leader at a time, who is heard to be none before the next one is.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use testbed::raw::Flags;
use testbed::{Proxy, wait_until};
use zklock::{
    AcquireOptions, CancelToken, Client, Election, LeaderChanges, Leadership, LockState,
    LossReason, WhoLeads,
};

use crate::fixtures::{SOON, children, client, client_at, mutex, raw, server, wait_for_children};

fn election(client: &Client, path: &str) -> Election {
    Election::new(client, path).expect("a good path")
}

fn named(client: &Client, path: &str, id: &str) -> Election {
    let builder = Election::builder(client, path).id(id);
    let builder = builder.pause(Duration::from_millis(10));
    builder.build().expect("a good path")
}

#[test]
fn one_leads_at_a_time_and_each_term_is_greater() {
    let path = "/election/one";
    let clients = [client(), client()];
    let elections = clients.each_ref().map(|client| election(client, path));
    let inside = AtomicUsize::new(0);
    let terms = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        let (inside, terms) = (&inside, &terms);
        for election in [&elections[0], &elections[0], &elections[1], &elections[1]] {
            scope.spawn(move || {
                for _ in 0..15 {
                    let leadership = election.campaign().expect("its turn");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    let term = leadership.fencing_token().expect("known").as_u64();
                    terms.lock().expect("no panic").push(term);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    leadership.resign().expect("still ours");
                }
            });
        }
    });
    let terms = terms.into_inner().expect("no panic");
    assert_eq!(terms.len(), 60);
    assert!(terms.is_sorted_by(|a, b| a < b), "{terms:?}");
    wait_for_children(server(), path, 0);
}

#[test]
fn a_leadership_goes_from_thread_to_thread() {
    let path = "/election/sent";
    let client = client();
    let election = election(&client, path);
    let leadership = election.campaign().expect("nobody else");
    // The thread that stood is not its owner: it does not lead twice, and it does not fail.
    assert!(election.try_campaign().expect("answers").is_none());
    let timeout = Duration::from_millis(100);
    assert!(
        election
            .try_campaign_for(timeout)
            .expect("answers")
            .is_none()
    );
    let (first, second) = thread::scope(|scope| {
        let term = leadership.fencing_token().expect("known");
        let (tell, told) = channel();
        scope.spawn(move || {
            told.recv().expect("sent");
            leadership.resign().expect("still ours");
        });
        tell.send(()).expect("waited for");
        let next = election.campaign().expect("its turn");
        (term, next.fencing_token().expect("known"))
    });
    assert!(first < second, "a term of its own");
    wait_for_children(server(), path, 0);
}

/// Who was told by a look now and then worked on beside the next leader, as the node went with the
/// leadership.
#[test]
fn a_worker_keeps_the_next_leader_out() {
    let path = "/election/worker";
    let clients = [client(), client()];
    let [ours, theirs] = clients.each_ref().map(|client| election(client, path));
    for drops in [false, true] {
        let leadership = ours.campaign().expect("its turn");
        let (view, worker) = (leadership.view(), leadership.worker());
        let other = worker.clone();
        assert!(worker.is_held() && view.is_held());
        thread::scope(|scope| {
            let next = scope.spawn(|| theirs.campaign().expect("its turn"));
            wait_for_children(server(), path, 2);
            if drops {
                drop(leadership);
            } else {
                let late = leadership.resign_for(Duration::from_millis(50));
                assert!(late.is_err_and(|error| error.is_timeout()));
            }
            // All know that it is over, and the node stands.
            for lost in [view.lost(), worker.lost(), other.lost()] {
                assert_eq!(lost.recv_timeout(SOON), Ok(LossReason::Released));
            }
            drop(worker);
            assert_eq!(children(server(), path).len(), 2);
            assert!(!next.is_finished());
            drop(other);
            let next = next.join().expect("no panic");
            next.resign().expect("still theirs");
        });
        wait_for_children(server(), path, 0);
    }
}

#[test]
fn resigning_waits_for_the_workers_last_steps() {
    let path = "/election/resign";
    let clients = [client(), client()];
    let [ours, theirs] = clients.each_ref().map(|client| election(client, path));
    let working = AtomicUsize::new(0);
    let leadership = ours.campaign().expect("nobody else");
    thread::scope(|scope| {
        for _ in 0..3 {
            let worker = leadership.worker();
            let working = &working;
            scope.spawn(move || {
                while worker.is_held() {
                    working.fetch_add(1, Ordering::SeqCst);
                    // A step, not a wait.
                    thread::sleep(Duration::from_millis(40));
                    working.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
        let (tell, told) = channel();
        let working = &working;
        scope.spawn(move || {
            let leadership = theirs.campaign().expect("its turn");
            tell.send(working.load(Ordering::SeqCst))
                .expect("waited for");
            drop(leadership);
        });
        wait_for_children(server(), path, 2);
        wait_until("all work", SOON, || working.load(Ordering::SeqCst) == 3);
        leadership.resign().expect("still ours");
        assert_eq!(told.recv_timeout(SOON), Ok(0), "beside the next leader");
    });
}

#[test]
fn threads_with_views_are_joined_before_the_node_goes() {
    let path = "/election/views";
    let client = client();
    let election = election(&client, path);
    let leadership = election.campaign().expect("nobody else");
    let view = leadership.view();
    let thread = thread::spawn(move || {
        view.lost().recv_timeout(SOON).expect("told");
        children(server(), path).len()
    });
    let mut stood = 0;
    let joined = leadership.resign_after(|| stood = thread.join().expect("no panic"));
    joined.expect("still ours");
    assert_eq!(stood, 1, "the node stands while they are waited for");
    wait_for_children(server(), path, 0);
}

#[test]
fn a_campaign_ends_in_time_or_when_cancelled_and_leaves_nothing() {
    let path = "/election/bounds";
    let clients = [client(), client()];
    let [ours, theirs] = clients.each_ref().map(|client| election(client, path));
    let leadership = ours.campaign().expect("nobody else");
    let before = raw(server()).create("/election/bounds/probe", b"", Flags::PersistentSequential);
    assert!(theirs.try_campaign().expect("answers").is_none());
    let past = theirs.try_campaign_until(Instant::now()).expect("answers");
    assert!(past.is_none());
    let after = raw(server()).create("/election/bounds/probe", b"", Flags::PersistentSequential);
    let number = |path: std::io::Result<String>| -> u32 {
        let path = path.expect("open to all");
        path[path.len() - 10..].parse().expect("ten digits")
    };
    assert_eq!(number(after), number(before) + 1, "a try writes nothing");
    let timeout = Duration::from_millis(200);
    let begun = Instant::now();
    assert!(theirs.try_campaign_for(timeout).expect("answers").is_none());
    assert!(begun.elapsed() >= timeout);
    let late = theirs.campaign_with(AcquireOptions::new().timeout(timeout));
    assert!(late.is_err_and(|error| error.is_timeout()));
    let stop = CancelToken::new();
    thread::scope(|scope| {
        let options = AcquireOptions::new().cancel(&stop);
        let waiter = scope.spawn(|| theirs.campaign_with(options).map(drop));
        wait_for_children(server(), path, 4);
        stop.cancel();
        let error = waiter.join().expect("no panic").expect_err("cancelled");
        assert!(error.is_cancelled(), "{error}");
    });
    // The leader, and what has counted.
    wait_for_children(server(), path, 3);
    drop(leadership);
    assert!(theirs.try_campaign().expect("answers").is_some());
}

#[test]
fn anybody_can_ask_who_leads() {
    let path = "/election/who";
    let clients = [client(), client(), client()];
    let first = named(&clients[0], path, "the first");
    let watcher = election(&clients[2], path);
    assert!(watcher.leader().expect("no folder yet").is_none());
    let leadership = first.campaign().expect("nobody else");
    thread::scope(|scope| {
        scope.spawn(|| {
            let options = AcquireOptions::new().data("the second");
            let second = election(&clients[1], path).campaign_with(options);
            drop(second.expect("its turn"));
        });
        wait_for_children(server(), path, 2);
        let leader = watcher.leader().expect("answers").expect("one leads");
        assert_eq!(leader.id(), "the first");
        assert_eq!(leader.path(), leadership.path());
        assert_eq!(leader.term(), leadership.fencing_token().expect("known"));
        assert_eq!(leader.identity(), None);
        assert!(!leader.is_ours());
        assert!(first.leader().expect("answers").expect("one").is_ours());
        assert!(leader.since() <= SystemTime::now());
        let [one, two] = <[_; 2]>::try_from(watcher.participants().expect("answers")).expect("two");
        assert!(one.is_holder() && !two.is_holder());
        assert_eq!(
            (one.data(), two.data()),
            (&b"the first"[..], &b"the second"[..])
        );
        drop(leadership);
    });
    assert!(watcher.leader().expect("answers").is_none());
}

#[track_caller]
fn next(leaders: &LeaderChanges) -> String {
    match leaders.recv_timeout(SOON).expect("told") {
        WhoLeads::Leader(leader) => leader.id().into_owned(),
        other => other.to_string(),
    }
}

#[test]
fn who_only_watches_hears_of_every_leader_that_stays() {
    let path = "/election/watched";
    let clients = [client(), client(), client()];
    let (a, b) = (named(&clients[0], path, "a"), named(&clients[1], path, "b"));
    let leaders = election(&clients[2], path).leaders().expect("answers");
    assert_eq!(next(&leaders), "nobody leads");
    assert!(
        !raw(server()).exists(path).expect("answers"),
        "it only watches"
    );
    for round in 0..3 {
        let first = a.campaign().expect("nobody else");
        assert_eq!(next(&leaders), "a", "{round}");
        thread::scope(|scope| {
            let second = scope.spawn(|| b.campaign().expect("its turn"));
            wait_for_children(server(), path, 2);
            first.resign().expect("ours");
            let second = second.join().expect("no panic");
            assert_eq!(next(&leaders), "b");
            second.resign().expect("ours");
        });
        assert_eq!(next(&leaders), "nobody leads");
        if round == 1 {
            // And then it is made again.
            raw(server()).delete(path).expect("empty");
        }
    }
    clients[2].close();
    // Whatever was told last, the channel ends.
    wait_until("at its end", SOON, || {
        leaders.try_recv() == Err(crossbeam_channel::TryRecvError::Disconnected)
    });
}

#[test]
fn who_only_watches_hears_that_there_is_no_contact() {
    let path = "/election/contact";
    let proxy = Proxy::start(server().addr());
    let (near, far) = (client(), client_at(&proxy.connect_string()));
    let first = named(&near, path, "a").campaign().expect("nobody else");
    let leaders = election(&far, path).leaders().expect("answers");
    assert_eq!(next(&leaders), "a");
    proxy.refuse();
    proxy.reset_all();
    assert_eq!(next(&leaders), "who leads is not known");
    first.resign().expect("ours");
    let _second = named(&near, path, "b").campaign().expect("nobody else");
    proxy.accept();
    assert_eq!(next(&leaders), "b");
}

#[test]
fn a_candidate_stands_again_until_it_is_stopped() {
    let path = "/election/serve";
    let clients = [client(), client()];
    let stop = CancelToken::new();
    let inside = AtomicBool::new(false);
    let (tell, told) = crossbeam_channel::unbounded();
    thread::scope(|scope| {
        let candidates: Vec<_> = ["a", "b"]
            .into_iter()
            .zip(&clients)
            .map(|(id, client)| {
                let (tell, stop, inside) = (tell.clone(), &stop, &inside);
                let election = named(client, path, id);
                scope.spawn(move || {
                    election.serve(stop, |leadership| {
                        assert!(!inside.swap(true, Ordering::SeqCst));
                        tell.send((id, leadership.fencing_token().expect("known")))
                            .expect("listened to");
                        inside.store(false, Ordering::SeqCst);
                        ControlFlow::<()>::Continue(())
                    })
                })
            })
            .collect();
        let terms: Vec<_> = (0..12)
            .map(|_| told.recv_timeout(SOON).expect("one leads"))
            .collect();
        stop.cancel();
        assert!(terms.is_sorted_by(|a, b| a.1 < b.1), "{terms:?}");
        for id in ["a", "b"] {
            assert!(terms.iter().any(|term| term.0 == id), "{id}: {terms:?}");
        }
        for candidate in candidates {
            let ended = candidate.join().expect("no panic");
            assert_eq!(ended.expect("to be cancelled is no error"), None);
        }
    });
    wait_for_children(server(), path, 0);
}

#[test]
fn a_candidate_that_is_stopped_steps_down_in_order() {
    let path = "/election/stopped";
    let client = client();
    let stop = CancelToken::new();
    let (tell, told) = channel();
    thread::scope(|scope| {
        let (client, stop) = (&client, &stop);
        let candidate = scope.spawn(move || {
            election(client, path).serve(stop, |leadership: &Leadership| {
                tell.send(()).expect("waited for");
                let why = leadership.worker().lost().recv_timeout(SOON);
                // Its workers have heard of it, and it leads still.
                assert_eq!(leadership.state(), LockState::Held);
                ControlFlow::Break((why, children(server(), path).len()))
            })
        });
        told.recv_timeout(SOON).expect("it leads");
        stop.cancel();
        let ended = candidate.join().expect("no panic");
        let expected = Some((Ok(LossReason::Released), 1));
        assert_eq!(ended.expect("it broke off"), expected);
    });
    wait_for_children(server(), path, 0);
}

#[test]
fn stopping_ends_a_campaign_and_a_pause() {
    let path = "/election/pause";
    let clients = [client(), client()];
    let leadership = election(&clients[0], path).campaign().expect("nobody else");
    let builder = Election::builder(&clients[1], path).pause(Duration::MAX);
    let patient = builder.build().expect("a good path");
    let (tell, told) = channel();
    let (stop, later) = (CancelToken::new(), CancelToken::new());
    thread::scope(|scope| {
        let waits = scope.spawn(|| patient.serve(&stop, |_| ControlFlow::Break(())));
        wait_for_children(server(), path, 2);
        stop.cancel();
        assert_eq!(waits.join().expect("no panic").expect("no error"), None);
        wait_for_children(server(), path, 1);
        drop(leadership);
        let pauses = scope.spawn(|| {
            patient.serve(&later, |_| {
                tell.send(()).expect("waited for");
                ControlFlow::<()>::Continue(())
            })
        });
        told.recv_timeout(SOON).expect("it leads");
        wait_for_children(server(), path, 0);
        later.cancel();
        assert_eq!(pauses.join().expect("no panic").expect("no error"), None);
    });
}

/// A process in an outage stands again for as long as that takes, and leads when it is over.
#[test]
fn a_lost_session_is_heard_before_the_next_one_leads() {
    let path = "/election/lost";
    let proxy = Proxy::start(server().addr());
    let (far, near) = (client_at(&proxy.connect_string()), client());
    let (ours, theirs) = (named(&far, path, "far"), named(&near, path, "near"));
    let stop = CancelToken::new();
    let (tell, told) = crossbeam_channel::unbounded();
    thread::scope(|scope| {
        let (ours, stop) = (&ours, &stop);
        let candidate = scope.spawn(move || {
            ours.serve(stop, |leadership| {
                tell.send((Instant::now(), None)).expect("listened to");
                let why = leadership.worker().lost().recv_timeout(SOON);
                tell.send((Instant::now(), Some(why))).expect("listened to");
                ControlFlow::<()>::Continue(())
            })
        });
        let (_, leads) = told.recv_timeout(SOON).expect("it leads");
        assert_eq!(leads, None);
        let successor = scope.spawn(|| {
            let leadership = theirs.campaign().expect("its turn");
            (Instant::now(), leadership)
        });
        wait_for_children(server(), path, 2);
        proxy.refuse();
        proxy.reset_all();
        let (lost, why) = told.recv_timeout(SOON).expect("it hears of it");
        assert_eq!(why, Some(Ok(LossReason::Session)));
        let (led, leadership) = successor.join().expect("no panic");
        assert!(lost < led, "two led for {:?}", lost - led);
        proxy.accept();
        wait_for_children(server(), path, 2);
        leadership.resign().expect("theirs");
        let (_, leads) = told.recv_timeout(SOON).expect("it leads again");
        assert_eq!(leads, None);
        stop.cancel();
        assert_eq!(candidate.join().expect("no panic").expect("no error"), None);
    });
}

#[test]
fn a_candidate_of_a_closed_client_ends_with_an_error() {
    let path = "/election/closed";
    let client = client();
    let stop = CancelToken::new();
    let ended = election(&client, path).serve(&stop, |leadership| {
        client.close();
        assert_eq!(leadership.lost().recv_timeout(SOON), Ok(LossReason::Closed));
        ControlFlow::<()>::Continue(())
    });
    assert!(ended.is_err_and(|error| error.is_closed()));
}

/// Curator's `LeaderSelector` is a mutex, and elects another leader than its `LeaderLatch`.
#[test]
fn an_election_where_a_mutex_is_in_use_is_refused() {
    let path = "/election/mixed";
    let clients = [client(), client()];
    let _guard = mutex(&clients[0], path).lock().expect("free");
    let ours = election(&clients[1], path);
    let refused = ours.campaign().expect_err("they do not exclude each other");
    assert!(refused.is_invalid(), "{refused}");
    assert!(refused.to_string().contains("an election"), "{refused}");
    assert!(ours.try_campaign().is_err_and(|error| error.is_invalid()));
    let stop = CancelToken::new();
    let ended = ours.serve(&stop, |_| ControlFlow::Break(()));
    assert!(ended.is_err_and(|error| error.is_invalid()));
    wait_for_children(server(), path, 1);
}

#[test]
fn a_leader_can_be_asked_to_step_down_and_deposed() {
    let path = "/election/asked";
    let clients = [client(), client()];
    let builder = Election::builder(&clients[0], path).revocable(true);
    let ours = builder.build().expect("a good path");
    let theirs = election(&clients[1], path);
    let leadership = ours.campaign().expect("nobody else");
    let leader = theirs.participants().expect("answers").remove(0);
    assert!(theirs.revoke(&leader).expect("answers"));
    assert_eq!(leadership.revocation().recv_timeout(SOON), Ok(()));
    assert_eq!(leadership.state(), LockState::Held);
    let worker = leadership.worker();
    assert!(theirs.break_lock(&leader).expect("answers"));
    assert_eq!(worker.lost().recv_timeout(SOON), Ok(LossReason::Removed));
    drop(worker);
    let lost = leadership.resign().expect_err("it was deposed");
    assert!(lost.is_lock_lost(), "{lost}");
    assert!(ours.try_campaign().expect("answers").is_some());
}
