//! Connecting: hosts that are dead, silent, unknown or wrong, and the chroot.

use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use testbed::raw::Flags;
use testbed::wait_until;
use zklock::{Client, ConnectionState};

use crate::fixtures::{SOON, T, mutex, raw, server};

/// A host that takes connections and never says a word.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    (listener, address)
}

/// A port where nobody listens.
fn dead() -> String {
    let (listener, address) = silent();
    drop(listener);
    address
}

#[test]
fn a_good_host_among_bad_ones_is_found() {
    let (_silent, silent) = silent();
    let servers = format!(
        "{},{silent},no-such-host.invalid:2181,{}",
        dead(),
        server().connect_string()
    );
    for _ in 0..3 {
        let client = Client::builder(&servers).session_timeout(T).connect();
        let client = client.expect("one of them is good");
        assert_eq!(client.state(), ConnectionState::Connected);
    }
}

#[test]
fn names_with_several_addresses_are_tried_one_by_one() {
    // `localhost` is 127.0.0.1 and, on most machines, ::1, where our server does not listen.
    let servers = format!("localhost:{},[::1]:{}", server().port(), server().port());
    Client::connect(&servers).expect("one of the addresses is good");
}

#[test]
fn failure_names_every_host_and_its_reason() {
    let (_silent, silent) = silent();
    let dead = dead();
    let servers = format!("{dead},{silent},no-such-host.invalid:2181");
    let begun = Instant::now();
    let error = Client::builder(&servers)
        .session_timeout(T)
        .connect_timeout(Duration::from_secs(3))
        .connect()
        .expect_err("none is good");
    assert!(
        begun.elapsed() < Duration::from_secs(6),
        "{:?}",
        begun.elapsed()
    );
    assert!(error.is_connection_loss());
    let text = error.to_string();
    for part in [
        &dead,
        &silent,
        "no-such-host.invalid",
        "refused",
        "no answer",
        "resolve",
    ] {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}

/// Also if the time was too short for some, or for all.
#[test]
fn every_server_has_a_reason_however_short_the_time() {
    let ((_one, one), (_other, other)) = (silent(), silent());
    for limit in [0, 1, 100, 2_000].map(Duration::from_millis) {
        let error = Client::builder(&format!("{one},{other}"))
            .connect_timeout(limit)
            .connect()
            .expect_err("nobody answers");
        assert!(error.is_connection_loss(), "{error}");
        let text = error.to_string();
        for server in [&one, &other] {
            let reasons = ["not tried in that time", "no answer"];
            let given = reasons.map(|why| text.contains(&format!("{server}: {why}")));
            assert!(given.contains(&true), "nothing of {server}: {text}");
        }
    }
}

/// A call that has waited for a connection in vain says what is wrong with the servers, too.
#[test]
fn a_call_without_contact_says_what_is_wrong_with_each_server() {
    let server = testbed::Server::start();
    let client = Client::builder(&server.connect_string())
        .retry(zklock::RetryPolicy::new().give_up_after(Some(Duration::from_secs(2))))
        .connect()
        .expect("a server that works");
    let lock = mutex(&client, "/connecting/gone");
    server.kill();
    let error = lock.lock().expect_err("nobody is there");
    assert!(error.is_connection_loss(), "{error}");
    let wanted = format!("{}: Connection refused", server.connect_string());
    assert!(error.to_string().contains(&wanted), "{error}");
}

#[test]
fn impossible_connect_strings_are_refused_at_once() {
    for servers in ["", "a:b", "a,,b", "::1:2181", "host/chroot/", "host/../x"] {
        let error = Client::connect(servers).expect_err(servers);
        assert!(error.is_invalid(), "{servers:?}: {error}");
    }
    let zero = Client::builder("localhost").session_timeout(Duration::ZERO);
    assert!(zero.connect().expect_err("no timeout").is_invalid());
}

#[test]
fn a_missing_chroot_is_told_or_made() {
    let servers = format!("{}/chroot/of/ours", server().connect_string());
    let error = Client::connect(&servers).expect_err("missing");
    assert!(
        error.to_string().contains("/chroot/of/ours does not exist"),
        "{error}"
    );
    let builder = Client::builder(&servers).create_chroot(true);
    let client = builder.connect().expect("made");
    let lock = mutex(&client, "/a");
    let other = mutex(&client, "/a");
    let guard = lock.lock().expect("free");
    assert!(guard.path().starts_with("/a/"), "without the chroot");
    let mut raw = raw(server());
    let names = raw.children("/chroot/of/ours/a").expect("below the chroot");
    assert_eq!(names.len(), 1);
    // Watches work below it, too.
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| other.lock().map(drop));
        wait_until("it queues", SOON, || {
            raw.children("/chroot/of/ours/a").expect("there").len() == 2
        });
        drop(guard);
        waiter.join().expect("no panic").expect("its turn");
    });
}

#[test]
fn the_granted_timeout_is_known() {
    let client = Client::builder(&server().connect_string())
        .session_timeout(Duration::from_secs(3600))
        .connect()
        .expect("a server that works");
    // 20 ticks of 500 ms.
    assert_eq!(client.session_timeout(), Some(Duration::from_secs(10)));
}

#[test]
fn an_auth_scheme_that_the_server_does_not_know_is_told() {
    let error = Client::builder(&server().connect_string())
        .auth("no-such-scheme", "user:secret")
        .connect()
        .expect_err("refused");
    assert!(error.is_no_auth(), "{error}");
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("no-such-scheme") && !text.contains("secret"),
        "{text}"
    );
}

/// A tick of many years was added to the clock on a thread of the client, which panicked.
#[test]
fn a_tick_that_no_server_has_is_refused() {
    let day = Duration::from_secs(24 * 60 * 60);
    let connect = |tick| {
        let builder = Client::builder(&server().connect_string());
        builder.tick_time(tick).connect()
    };
    for tick in [Duration::ZERO, day + Duration::from_nanos(1), Duration::MAX] {
        let error = connect(tick).map(drop).expect_err("no tick");
        assert!(error.is_invalid(), "{error}");
        assert!(error.to_string().contains("tickTime"), "{error}");
    }
    let client = connect(day).expect("odd, and sound");
    drop(mutex(&client, "/connecting/tick").lock().expect("free"));
}

#[test]
fn the_last_handle_closes_the_session() {
    let client = crate::fixtures::client();
    let lock = mutex(&client, "/connecting/last");
    let session = client.session_id().expect("connected");
    drop(client);
    drop(lock.lock().expect("the lock keeps it open"));
    drop(lock);
    let id = format!("0x{session:x}");
    wait_until("the session is closed", SOON, || {
        !server().admin("dump").contains(&id)
    });
    raw(server())
        .create("/connecting/after", b"", Flags::Ephemeral)
        .expect("the server is well");
}
