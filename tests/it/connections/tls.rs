//! TLS with real servers: their `secureClientPort`, with and without client certificates.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testbed::certificates::{Authority, Certified};
use testbed::{Proxy, Server, wait_until};
use zklock::{Acl, Client, ClientBuilder, ConnectionEvent, LossReason, Permissions, Tls};

use crate::fixtures::{SOON, T, mutex};

const LOOPBACK: &[&str] = &["127.0.0.1", "localhost"];

/// A server that speaks TLS, and those who may talk to it.
struct Ground {
    authority: Authority,
    server: Server,
}

impl Ground {
    fn start(client_auth: &str, protocol: &str) -> Ground {
        let authority = Authority::new("tests");
        let own = authority.certify("server", LOOPBACK);
        let server = Server::builder()
            .secure(&own.store, &authority.file(), client_auth, protocol)
            .start();
        Ground { authority, server }
    }

    fn anonymous(&self) -> Tls {
        Tls::pem(self.authority.file()).expect("good files")
    }

    fn known_as(&self, name: &str) -> Tls {
        identified(self.anonymous(), &self.authority.certify(name, &[]))
    }

    fn builder(&self, tls: Tls) -> ClientBuilder {
        Client::builder(&self.server.secure_connect_string()).tls(tls)
    }

    fn client(&self, tls: Tls) -> Client {
        self.builder(tls).connect().expect("a server that works")
    }

    /// What `connect` says when it fails.
    fn refusal(&self, tls: Tls) -> String {
        let patience = Duration::from_secs(2);
        let failed = self.builder(tls).connect_timeout(patience).connect();
        let error = failed.expect_err("refused");
        assert!(error.is_connection_loss(), "{error}");
        error.to_string()
    }
}

fn identified(tls: Tls, who: &Certified) -> Tls {
    tls.identity(&who.certificate, &who.key)
        .expect("good files")
}

fn await_event(events: &crossbeam_channel::Receiver<ConnectionEvent>, wanted: &ConnectionEvent) {
    loop {
        let event = events.recv_timeout(SOON);
        if event.expect("the client lives") == *wanted {
            return;
        }
    }
}

#[track_caller]
fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}

/// The session lives on, over a handshake of its own for each connection.
fn keeps_its_session_over_a_restart(protocol: &str) {
    let ground = Ground::start("none", protocol);
    let client = ground.client(ground.anonymous());
    let session = client.session_id();
    let lock = mutex(&client, "/tls/kept");
    let guard = lock.lock().expect("free");
    let events = client.events();
    ground.server.restart();
    await_event(&events, &ConnectionEvent::Reconnected);
    assert_eq!(client.session_id(), session);
    wait_until("it is held again", SOON, || guard.is_held());
    guard.unlock().expect("ours");
    // More than a record holds, both ways.
    let data = vec![7; 100_000];
    let lock = zklock::Mutex::builder(&client, "/tls/large").data(data.clone());
    let lock = lock.build().expect("good");
    let guard = lock.lock().expect("free");
    let holder = &lock.participants().expect("connected")[0];
    assert_eq!(holder.data(), data);
    drop(guard);
}

#[test]
fn keeps_its_session_over_tls_1_2() {
    keeps_its_session_over_a_restart("TLSv1.2");
}

#[test]
fn keeps_its_session_over_tls_1_3() {
    keeps_its_session_over_a_restart("TLSv1.3");
}

/// A megabyte of node data over 4 Mbit/s takes two seconds, also where records hold it back before
/// they are sent: that is no silence, and breaks nothing.
#[test]
fn a_megabyte_over_a_slow_network_breaks_nothing() {
    let ground = Ground::start("none", "TLSv1.3");
    let secure = ground.server.secure_connect_string().parse();
    let proxy = Proxy::start(secure.expect("an address"));
    proxy.limit_rate(500_000);
    let builder = Client::builder(&proxy.connect_string()).tls(ground.anonymous());
    let client = builder.session_timeout(Duration::from_secs(10)).connect();
    let client = client.expect("it serves");
    let holder = mutex(&client, "/tls/beside").lock().expect("free");
    let events = client.events();
    let large = zklock::Mutex::builder(&client, "/tls/slow").data(vec![7; 1_000_000]);
    let large = large.build().expect("it fits");
    for _ in 0..2 {
        let guard = large.try_lock_for(SOON).expect("answered");
        guard.expect("free").unlock().expect("confirmed");
    }
    assert!(holder.is_held());
    assert!(events.try_recv().is_err(), "no break");
    assert_eq!(proxy.counters().accepted, 1);
}

/// Its subject is who the client is: what one has made is closed to the other.
#[test]
fn a_certificate_is_an_identity() {
    let ground = Ground::start("need", "TLSv1.3");
    let alice = ground.builder(ground.known_as("alice"));
    let alice = alice.acl(Acl::creator_all()).connect().expect("known");
    let bob = ground.client(ground.known_as("bob"));
    let own = mutex(&alice, "/alice/own");
    let guard = own.lock().expect("free");
    let error = mutex(&bob, "/alice/own").try_lock().expect_err("closed");
    assert!(error.is_no_auth(), "{error}");

    // A list of one's own: both, by their names.
    let both = Acl::entry("x509", "CN=alice", Permissions::ALL).and(Acl::entry(
        "x509",
        "CN=bob",
        Permissions::ALL,
    ));
    let alice_too = ground.builder(ground.known_as("alice")).acl(both);
    let alice_too = alice_too.connect().expect("known");
    let shared = mutex(&alice_too, "/shared/by-name");
    let held = shared.lock().expect("free");
    assert!(
        mutex(&bob, "/shared/by-name")
            .try_lock()
            .expect("open to bob")
            .is_none()
    );
    let carol = ground.client(ground.known_as("carol"));
    let error = mutex(&carol, "/shared/by-name")
        .try_lock()
        .expect_err("closed");
    assert!(error.is_no_auth(), "{error}");
    drop((guard, held));
}

/// Where ZooKeeper's sites keep their keys, EC keys lack their public half.
#[test]
fn keys_out_of_a_java_keystore_are_taken() {
    let authority = Authority::new("tests");
    let own = authority.certify("server", LOOPBACK);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed/keystore");
    for curve in ["p256", "p384"] {
        let alice = folder.join(format!("alice-{curve}.pem"));
        let key = folder.join(format!("alice-{curve}.key"));
        let server = Server::builder()
            .secure(&own.store, &alice, "need", "TLSv1.3")
            .start();
        let tls = Tls::pem(authority.file()).expect("a good file");
        let tls = tls.identity(&alice, &key).expect("both are alice's");
        let client = Client::builder(&server.secure_connect_string()).tls(tls);
        let client = client.acl(Acl::creator_all()).connect().expect("known");
        drop(mutex(&client, "/alice/own").lock().expect("hers"));
    }
    // Of a curve that is not supported, and of another certificate.
    for (certificate, key) in [("p521", "p521"), ("p384", "p256")] {
        let tls = Tls::pem(authority.file()).expect("a good file");
        let certificate = folder.join(format!("alice-{certificate}.pem"));
        let refused = tls.identity(certificate, folder.join(format!("alice-{key}.key")));
        let text = refused.expect_err("refused").to_string();
        assert_says(
            &text,
            &[
                &format!("alice-{key}.key"),
                "is not the private key",
                "P-384",
            ],
        );
    }
}

fn tells_that_a_client_certificate_is_missing_or_unknown(protocol: &str) {
    let ground = Ground::start("need", protocol);
    let host = ground.server.secure_connect_string();
    let text = ground.refusal(ground.anonymous());
    assert_says(
        &text,
        &[&host, "wants a client certificate", "Tls::identity"],
    );

    let elsewhere = Authority::new("elsewhere");
    let stranger = elsewhere.certify("stranger", &[]);
    let text = ground.refusal(identified(ground.anonymous(), &stranger));
    let file = stranger.certificate.display().to_string();
    assert_says(&text, &[&host, "refused the client certificate", &file]);
}

#[test]
fn tells_that_a_client_certificate_is_missing_or_unknown_in_tls_1_2() {
    tells_that_a_client_certificate_is_missing_or_unknown("TLSv1.2");
}

/// Here the client's handshake is over before the server has looked at the certificate: it says so
/// in place of its first answer.
#[test]
fn tells_that_a_client_certificate_is_missing_or_unknown_in_tls_1_3() {
    tells_that_a_client_certificate_is_missing_or_unknown("TLSv1.3");
}

#[test]
fn the_wrong_port_is_told_and_the_next_host_is_tried() {
    let ground = Ground::start("none", "TLSv1.3");
    let plain = ground.server.connect_string();
    let failed = Client::builder(&plain)
        .tls(ground.anonymous())
        .connect_timeout(Duration::from_secs(1))
        .connect();
    let text = failed.expect_err("no TLS there").to_string();
    assert_says(
        &text,
        &[&format!("{plain}: it"), "without TLS", "secureClientPort"],
    );

    let secure = ground.server.secure_connect_string();
    let failed = Client::builder(&secure)
        .connect_timeout(Duration::from_secs(1))
        .connect();
    let text = failed.expect_err("TLS only").to_string();
    assert_says(&text, &[&format!("{secure}: it speaks TLS"), "clientPort"]);
    assert!(!text.contains("quorum"), "{text}");

    for _ in 0..4 {
        let both = Client::builder(&format!("{plain},{secure}")).tls(ground.anonymous());
        both.connect().expect("one of them speaks TLS");
    }
}

/// The files are those of the moment of the connection.
#[test]
fn rotated_files_are_taken_with_the_next_connection() {
    let ground = Ground::start("none", "TLSv1.3");
    let folder = tempfile::tempdir().expect("a folder");
    let ca = folder.path().join("ca.pem");
    let replace = |by: &Path| fs::copy(by, &ca).expect("both are ours");
    replace(&ground.authority.file());
    let client = ground.builder(Tls::pem(&ca).expect("good"));
    let client = client.session_timeout(T).connect().expect("it works");
    let events = client.events();

    let other = Authority::new("another");
    replace(&other.file());
    ground.server.restart();
    await_event(&events, &ConnectionEvent::Lost);
    replace(&ground.authority.file());
    // In a new session.
    wait_until("it is connected again", SOON, || {
        client.state() == zklock::ConnectionState::Connected
    });
}

/// The time of an idle cycle by TLS, beside that of one without on the same server, in turns.
/// `cargo test --release --all-features --test it -- --ignored tls::what_it_costs --nocapture`
#[test]
#[ignore = "it measures, and proves nothing"]
fn what_it_costs() {
    const ROUNDS: usize = 300;
    let ground = Ground::start("none", "TLSv1.3");
    let plain = Client::connect(&ground.server.connect_string()).expect("it serves");
    let sealed = ground.client(ground.anonymous());
    let locks = [mutex(&plain, "/cost/plain"), mutex(&sealed, "/cost/sealed")];
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (lock, times) in locks.iter().zip(&mut times) {
            let begun = std::time::Instant::now();
            lock.lock().expect("free").unlock().expect("ours");
            times.push(begun.elapsed());
        }
    }
    let [plain, sealed] = times.map(|mut times| {
        times.drain(..ROUNDS / 3);
        times.sort();
        times[times.len() / 2]
    });
    let ratio = sealed.as_secs_f64() / plain.as_secs_f64();
    println!("plain {plain:?}, TLS {sealed:?}: {ratio:.2} x");
}

/// The thread that connects reads the files again, here from a disk that hangs: the loss is told by
/// the one that looks at the clock.
#[test]
fn a_loss_is_told_though_the_files_cannot_be_read() {
    let ground = Ground::start("none", "TLSv1.3");
    let folder = tempfile::tempdir().expect("a place for the files");
    let (file, hangs) = (folder.path().join("ca"), folder.path().join("hangs"));
    fs::copy(ground.authority.file(), &file).expect("written");
    let made = Command::new("mkfifo").arg(&hangs).status();
    assert!(made.expect("there is mkfifo").success());
    let server = ground.server.secure_connect_string();
    let proxy = Proxy::start_raw(server.parse().expect("an address"));
    let tls = Tls::pem(&file).expect("good files");
    let client = Client::builder(&proxy.connect_string())
        .session_timeout(T)
        .tls(tls);
    let client = client.connect().expect("a server that works");
    let lock = mutex(&client, "/tls/hangs");
    let guard = lock.lock().expect("free");
    fs::rename(&hangs, &file).expect("in its place");
    proxy.reset_all();
    let told = guard.lost().recv_timeout(SOON);
    assert_eq!(told, Ok(LossReason::Session));
    // Whoever reads it finds its end, and next time a file that ends.
    let end = fs::OpenOptions::new().write(true).open(&file);
    fs::remove_file(&file).expect("ours");
    drop(end);
}
