//! What the loop does with news that come together.

use std::env;
use std::fs::File;
use std::sync::mpsc;

use rustix::process::{Resource, getrlimit, setrlimit};

use super::*;
use crate::core::{Line, Settings};

const MS: Duration = Duration::from_millis(1);

/// Goes on for as long as it is read from.
struct Endless(usize);

impl Read for Endless {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0 += 1;
        assert!(self.0 < 1000, "no end");
        Ok(1)
    }
}

/// A server that does nothing unless it is told to, its inbox, and what wakes it.
fn driver() -> (Driver, mpsc::Sender<Order>, UnixStream) {
    let settings = Settings {
        line: Line::V3_8,
        server_id: 1,
        tick: MS * 100,
        min_session_timeout: MS * 200,
        max_session_timeout: MS * 60_000,
        max_frame: 1000,
        container_check: MS * 60_000,
        epoch_ms: 0,
        secret: 0,
    };
    let port = Port::claim(0).expect("loopback has a free port");
    let (wake, woken) = UnixStream::pair().expect("a pair");
    let (orders, inbox) = mpsc::channel();
    let cluster = Cluster::alone(settings);
    let driver = Driver::new(cluster, vec![port], inbox, woken, Arc::new(Bell::default()));
    (driver.expect("it listens"), orders, wake)
}

#[test]
fn what_came_together_with_the_order_to_pause_is_not_heard() {
    let (mut driver, orders, mut wake) = driver();
    let mut client = TcpStream::connect(driver.doors[0].port.address()).expect("it listens");
    driver.turn();
    assert_eq!(driver.cluster.machine(0).seen.accepted, 1);
    client.write_all(b"ruok").expect("it is open");
    let _other = TcpStream::connect(driver.doors[0].port.address()).expect("it listens");
    let pause: Order = Box::new(|driver| driver.seat(0).pause());
    orders.send(pause).expect("the inbox is there");
    wake.write_all(&[1]).expect("it is open");
    driver.turn();
    assert_eq!(driver.cluster.machine(0).seen.accepted, 1);
    driver.seat(0).resume();
    assert_eq!(driver.cluster.machine(0).seen.asked.len(), 0);
    let socket = driver.sockets.values().next().expect("it is open");
    assert_eq!(socket.stream.peek(&mut [0; 8]).expect("unread"), 4);
}

#[test]
fn whoever_goes_on_writing_is_not_read_for_ever() {
    drain(Endless(0), &mut [0; 8]);
}

#[test]
fn a_cut_of_all_meets_who_was_not_accepted_yet() {
    let (mut driver, _orders, _wake) = driver();
    let mut client = TcpStream::connect(driver.doors[0].port.address()).expect("it listens");
    client.set_read_timeout(Some(MS * 5000)).expect("a time");
    driver.seat(0).cut(Whom::All);
    let cut = client.read(&mut [0; 8]).expect_err("it is reset");
    assert_eq!(cut.kind(), ErrorKind::ConnectionReset);
}

const ALONE: &str = "ZKLOCK_TEST_SERVER_WITHOUT_DESCRIPTORS";

/// A process had no descriptor left. The listener stayed ready, so the server's thread turned as fast as it could, for as
/// long as that lasted. In a process of its own, as all tests share the descriptors of one.
#[test]
fn who_cannot_be_taken_for_want_of_descriptors_is_waited_for_without_turning() {
    if env::var_os(ALONE).is_none() {
        let mut alone = testbed::process::test_alone(
            module_path!(),
            "who_cannot_be_taken_for_want_of_descriptors_is_waited_for_without_turning",
        );
        let alone = alone.env(ALONE, "1").output().expect("it can be started");
        assert!(alone.status.success(), "{alone:?}");
        return;
    }
    let (mut driver, _orders, _wake) = driver();
    let flags = SocketFlags::CLOEXEC;
    let client = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
    let client = client.expect("a socket");
    let mut few = getrlimit(Resource::Nofile);
    few.current = Some(64);
    setrlimit(Resource::Nofile, few).expect("fewer than before");
    let mut all = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        all.push(file);
    }
    rustix::net::connect(&client, &driver.doors[0].port.address()).expect("the system takes it");
    driver.turn();
    assert_eq!(driver.cluster.machine(0).seen.accepted, 0);
    let begun = Instant::now();
    driver.turn();
    // A turn that did not wait takes microseconds.
    let waited = begun.elapsed();
    assert!(waited >= NO_ROOM / 2, "only {waited:?}");
    all.clear();
    while driver.cluster.machine(0).seen.accepted == 0 {
        driver.turn();
    }
}
