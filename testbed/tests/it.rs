//! The test bed itself: a fault that does not happen as ordered, or a server
//! that outlives its test, would make every other test lie.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use testbed::raw::{Flags, create_body};
use testbed::{
    Action, Direction, Ensemble, Matcher, Proxy, RawSession, Server, four_letter, opcode, process,
    wait_until,
};

const SOON: Duration = Duration::from_secs(20);
const SESSION: Duration = Duration::from_secs(5);
/// Long enough for a byte to cross a loopback proxy many times over. Only used
/// to see that something does not happen.
const A_MOMENT: Duration = Duration::from_millis(200);

fn is_reset(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionReset
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

#[test]
fn server_serves_and_is_gone_after_drop() {
    let server = Server::builder().apache().start();
    let (pid, addr) = (server.pid(), server.addr());
    let home = data_folder(&server);
    assert!(server.admin("srvr").contains("Mode: standalone"));
    let mut session = RawSession::open(addr, SESSION).expect("the server serves");
    session
        .create("/a", b"", Flags::Ephemeral)
        .expect("nobody made it before");
    let stats = server.stats();
    assert_eq!(stats.ephemeral_count, 1);
    assert!(stats.received > 0 && stats.sent > 0);

    drop(server);
    assert!(!process::is_alive(pid));
    assert!(TcpStream::connect(addr).is_err());
    assert!(!Path::new(&home).exists());
}

fn data_folder(server: &Server) -> String {
    let conf = server.admin("conf");
    let folder = conf.lines().find_map(|line| line.strip_prefix("dataDir="));
    folder.expect("conf names it").to_owned()
}

#[test]
fn server_keeps_its_port_and_data_over_a_kill() {
    let server = Server::builder().apache().start();
    let addr = server.addr();
    let mut session = RawSession::open(addr, SESSION).expect("the server serves");
    session
        .create("/kept", b"data", Flags::Persistent)
        .expect("nobody made it before");
    let pid = server.pid();
    server.kill();
    assert!(!process::is_alive(pid));
    server.restart();
    assert_ne!(server.pid(), pid);
    assert_eq!(server.addr(), addr);
    let mut session = RawSession::open(addr, SESSION).expect("the server serves again");
    assert_eq!(session.data("/kept").expect("it was kept"), b"data");
}

#[test]
fn frozen_server_says_nothing_until_it_thaws() {
    let server = Server::start();
    server.stop();
    assert!(server.is_alive() && !server.is_awake());
    assert!(four_letter::ask(server.addr(), "srvr", A_MOMENT).is_err());
    server.cont();
    assert!(server.admin("srvr").contains("Mode: standalone"));
}

const HOLDER_ROLE: &str = "ZKLOCK_TEST_HOLDS_A_SERVER";

/// A destructor does not run in a killed process: without a guardian the server
/// would stay for ever. The test starts its own program again, lets that start
/// a server, and kills it.
#[test]
fn server_does_not_outlive_a_killed_test_process() {
    let mut holder = process::test_alone(module_path!(), "holder_of_a_server")
        .env(HOLDER_ROLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test's program can be started");
    let output = BufReader::new(holder.stdout.take().expect("stdout is piped"));
    let (pid, folder) = output
        .lines()
        .map_while(Result::ok)
        .find_map(|line| {
            // The test runner may have begun the line with the test's name.
            let (_, said) = line.split_once("holds ")?;
            let (pid, folder) = said.split_once(' ')?;
            Some((pid.parse().expect("a process id"), folder.to_owned()))
        })
        .expect("the holder says what it holds");
    assert!(process::is_alive(pid));
    holder.kill().expect("it is our child");
    holder.wait().expect("it is our child");
    wait_until("the server has ended", SOON, || !process::is_alive(pid));
    wait_until("its files are gone", SOON, || !Path::new(&folder).exists());
}

/// The other half of the test above; by itself it does nothing.
#[test]
fn holder_of_a_server() {
    if env::var_os(HOLDER_ROLE).is_none() {
        return;
    }
    let server = Server::builder().apache().start();
    println!("holds {} {}", server.pid(), data_folder(&server));
    // Ends by SIGKILL, or when the test that started this has gone.
    let _ = io::stdin().read_line(&mut String::new());
}

#[test]
fn proxy_loses_the_reply_to_the_nth_create_and_resets() {
    let server = Server::start();
    let proxy = Proxy::start(server.addr());
    let mut witness = RawSession::open(server.addr(), SESSION).expect("the server serves");
    let mut session = RawSession::open(proxy.addr(), SESSION).expect("the proxy passes");
    let trap = proxy.on_reply(
        Matcher::nth(opcode::CREATE, 2).with_path_containing("/n-"),
        Action::Reset,
    );

    for path in ["/n-1", "/other", "/another"] {
        session
            .create(path, b"", Flags::Ephemeral)
            .expect("these replies pass");
    }
    assert_eq!(trap.times_sprung(), 0);
    let error = session
        .create("/n-2", b"", Flags::Ephemeral)
        .expect_err("this reply is lost");
    assert!(is_reset(&error), "{error:?}");
    trap.wait_until_sprung(SOON);

    // The server has carried it out: that is what makes a lost reply dangerous.
    assert!(witness.exists("/n-2").expect("the witness is not proxied"));
    let counters = proxy.counters();
    assert_eq!(counters.requested(opcode::CREATE), 4);
    assert_eq!(counters.replied(opcode::CREATE), 4);
    assert_eq!(counters.dropped, 1);
    proxy.wait_for(|counters| counters.open == 0, SOON);

    let mut resumed =
        RawSession::resume(proxy.addr(), SESSION, session.session_id, &session.password)
            .expect("the proxy passes again");
    assert_eq!(resumed.session_id, session.session_id);
    assert!(resumed.exists("/n-2").expect("the session goes on"));
}

#[test]
fn proxy_loses_a_reply_into_a_black_hole() {
    let server = Server::start();
    let proxy = Proxy::start(server.addr());
    let mut session = RawSession::open(proxy.addr(), Duration::from_secs(1)).expect("it passes");
    let trap = proxy.on_reply(opcode::DELETE, Action::BlackHole);
    session
        .create("/a", b"", Flags::Persistent)
        .expect("it passes");
    let error = session.delete("/a").expect_err("its reply is lost");
    assert!(is_timeout(&error), "{error:?}");
    trap.wait_until_sprung(SOON);
    // Only this connection fell silent.
    let mut other = RawSession::open(proxy.addr(), SESSION).expect("others pass");
    assert!(!other.exists("/a").expect("others pass"));
    other.close().expect("others pass");
}

#[test]
fn proxy_loses_a_request_before_the_server_sees_it() {
    let server = Server::start();
    let proxy = Proxy::start(server.addr());
    let mut session = RawSession::open(proxy.addr(), SESSION).expect("the proxy passes");
    let trap = proxy.on_request(opcode::CREATE, Action::Drop);
    session
        .request(opcode::CREATE, &create_body("/lost", b"", Flags::Ephemeral))
        .expect("the proxy reads it");
    assert!(!session.exists("/lost").expect("the connection goes on"));
    assert_eq!(trap.times_sprung(), 1);
}

#[test]
fn proxy_holds_a_request_back_until_it_is_released() {
    let server = Server::start();
    let proxy = Proxy::start(server.addr());
    let mut witness = RawSession::open(server.addr(), SESSION).expect("the server serves");
    let mut session = RawSession::open(proxy.addr(), SESSION).expect("the proxy passes");
    let hold = proxy.hold_request(opcode::CREATE);
    assert!(!hold.is_held());
    let creation = thread::spawn(move || session.create("/held", b"", Flags::Ephemeral));
    hold.wait_until_held(SOON);
    assert!(!witness.exists("/held").expect("the witness is not proxied"));
    hold.release();
    let path = creation.join().expect("it does not panic");
    assert_eq!(path.expect("the reply came"), "/held");
}

#[test]
fn proxy_holds_a_reply_back_until_it_is_released() {
    let server = Server::start();
    let proxy = Proxy::start(server.addr());
    let mut witness = RawSession::open(server.addr(), SESSION).expect("the server serves");
    let mut session = RawSession::open(proxy.addr(), SESSION).expect("the proxy passes");
    let hold = proxy.hold_reply(opcode::CREATE);
    let creation = thread::spawn(move || session.create("/late", b"", Flags::Ephemeral));
    hold.wait_until_held(SOON);
    assert!(witness.exists("/late").expect("the witness is not proxied"));
    assert!(!creation.is_finished());
    // pass() ends every fault, holds included.
    proxy.pass();
    creation
        .join()
        .expect("it does not panic")
        .expect("the reply came");
}

#[test]
fn proxy_moves_nothing_through_a_black_hole_and_all_of_it_later() {
    for direction in [Direction::ToServer, Direction::ToClient, Direction::Both] {
        let server = Server::start();
        let proxy = Proxy::start(server.addr());
        let mut witness = RawSession::open(server.addr(), SESSION).expect("the server serves");
        let mut session = RawSession::open(proxy.addr(), SESSION).expect("the proxy passes");
        proxy.black_hole(direction);
        session
            .request(opcode::CREATE, &create_body("/late", b"", Flags::Ephemeral))
            .expect("the kernel takes it");
        if direction == Direction::ToClient {
            proxy.wait_for(|counters| counters.requested(opcode::CREATE) == 1, SOON);
            wait_until("the server carried it out", SOON, || {
                witness.exists("/late").expect("the witness is not proxied")
            });
            assert_eq!(proxy.counters().replied(opcode::CREATE), 0);
        } else {
            let late = RawSession::open(proxy.addr(), A_MOMENT).expect_err("no handshake passes");
            assert!(is_timeout(&late), "{late:?}");
            // It was let in, all the same.
            assert_eq!(proxy.counters().accepted, 2);
            assert_eq!(proxy.counters().requested(opcode::CREATE), 0);
            assert!(!witness.exists("/late").expect("the witness is not proxied"));
        }
        proxy.heal();
        let reply = session.reply().expect("it arrives late");
        assert_eq!(reply.error, 0);
    }
}

#[test]
fn proxy_delays_each_way_without_limiting_the_rate() {
    const DELAY: Duration = Duration::from_millis(100);
    const REQUESTS: u32 = 20;
    let server = Server::start();
    let proxy = Proxy::start(server.addr());
    let mut session = RawSession::open(proxy.addr(), SESSION).expect("the proxy passes");
    proxy.delay(DELAY);
    let begin = Instant::now();
    assert!(!session.exists("/a").expect("it passes in time"));
    assert!(begin.elapsed() >= DELAY * 2);

    let begin = Instant::now();
    for number in 0..REQUESTS {
        let body = create_body(&format!("/n{number}"), b"", Flags::Ephemeral);
        session.request(opcode::CREATE, &body).expect("it passes");
    }
    for _ in 0..REQUESTS {
        assert_eq!(session.reply().expect("it passes in time").error, 0);
    }
    assert!(begin.elapsed() >= DELAY * 2);
    // One after the other they would take the delay times their number.
    assert!(begin.elapsed() < DELAY * REQUESTS);
}

#[test]
fn proxy_resets_and_refuses_and_accepts_again() {
    let server = Server::start();
    let proxy = Proxy::start(server.addr());
    let mut session = RawSession::open(proxy.addr(), SESSION).expect("the proxy passes");
    proxy.refuse();
    let refused = TcpStream::connect(proxy.addr()).expect_err("nobody listens");
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    session.exists("/").expect("an open connection stays");

    proxy.reset_all();
    assert_eq!(proxy.counters().open, 0);
    let error = session.reply().expect_err("the connection was reset");
    assert!(is_reset(&error), "{error:?}");

    proxy.accept();
    RawSession::open(proxy.addr(), SESSION).expect("it listens again");
    assert_eq!(proxy.counters().accepted, 2);
}

#[test]
fn proxy_passes_on_the_end_of_a_connection_and_a_dead_server() {
    let server = Server::start();
    let proxy = Proxy::start(server.addr());
    let session = RawSession::open(proxy.addr(), SESSION).expect("the proxy passes");
    let mut idle = RawSession::open(proxy.addr(), SESSION).expect("the proxy passes");
    session.close().expect("the server closes it");
    proxy.wait_for(|counters| counters.open == 1, SOON);
    assert!(four_letter::ask(proxy.addr(), "srvr", SOON).is_ok_and(|a| a.contains("Mode")));

    server.kill();
    idle.reply().expect_err("its server is dead");
    drop(idle);
    proxy.wait_for(|counters| counters.open == 0, SOON);
    RawSession::open(proxy.addr(), SESSION).expect_err("there is nobody to talk to");
    server.restart();
    RawSession::open(proxy.addr(), SESSION).expect("the server is back");
}

#[test]
fn ensemble_elects_a_leader_and_survives_its_end() {
    let ensemble = Ensemble::start(3);
    let first = ensemble.leader();
    assert_eq!(ensemble.connect_string().split(',').count(), 3);
    let follower = ensemble.server(ensemble.follower()).addr();
    let mut session = RawSession::open(follower, SESSION).expect("a follower serves");
    session
        .create("/kept", b"", Flags::Persistent)
        .expect("there is a quorum");

    ensemble.kill(first);
    let second = ensemble.leader();
    assert_ne!(second, first);
    let leader = ensemble.server(second).addr();
    let mut session = RawSession::open(leader, SESSION).expect("the new leader serves");
    assert!(session.exists("/kept").expect("the new leader serves"));

    ensemble.restart(first);
    assert_eq!(
        ensemble.server(first).mode(SOON).as_deref(),
        Some("follower")
    );
}

#[test]
fn ensemble_replaces_a_frozen_leader() {
    let ensemble = Ensemble::start(3);
    let first = ensemble.leader();
    ensemble.stop(first);
    assert_ne!(ensemble.leader(), first);
    ensemble.cont(first);
    ensemble.wait_until_awake_serve();
}

/// Servers tell each other where to dial back. One such connection that does not go through the
/// proxies, and a server that is cut off takes part in elections all the same.
#[test]
fn elections_of_a_proxied_ensemble_go_through_the_proxies() {
    let ensemble = Ensemble::start_proxied(3, &Server::builder());
    let links = ensemble.links();
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        wait_until("each pair talks through a proxy", SOON, || {
            links.election_connections(one, other) > 0
        });
    }
}

/// A follower that hears nobody goes on serving reads until its limit is over, and then serves no
/// more; the others go on. Healed, it follows again.
#[test]
fn a_server_can_be_cut_off_from_its_peers() {
    let ensemble = Ensemble::start_proxied(3, &Server::builder());
    let (leader, follower) = (ensemble.leader(), ensemble.follower());
    ensemble.links().isolate(follower);
    let mut others = RawSession::open(ensemble.server(leader).addr(), SESSION).expect("it leads");
    others
        .create("/kept", b"", Flags::Persistent)
        .expect("two of three are a quorum");
    wait_until("it serves no more", SOON, || {
        ensemble.server(follower).mode(SOON).is_none()
    });
    assert_eq!(ensemble.leader_among(&[leader]), Some(leader));
    ensemble.links().heal();
    ensemble.wait_until_awake_serve();
    let mut session =
        RawSession::open(ensemble.server(follower).addr(), SESSION).expect("it follows");
    assert!(session.exists("/kept").expect("it caught up"));
}

/// The deposed leader serves on until it has missed its followers for long enough.
#[test]
fn a_leader_can_be_cut_off_and_is_replaced() {
    let ensemble = Ensemble::start_proxied(3, &Server::builder());
    let first = ensemble.leader();
    let others: Vec<_> = (0..3).filter(|index| *index != first).collect();
    ensemble.links().isolate(first);
    wait_until("another leads", SOON, || {
        ensemble.leader_among(&others).is_some()
    });
    wait_until("the first steps down", SOON, || {
        ensemble.server(first).mode(SOON).is_none()
    });
    ensemble.links().heal();
    ensemble.wait_until_awake_serve();
    assert!(ensemble.leader_among(&others).is_some());
}

/// A follower dials its new leader a moment before that listens. Were it let in by the proxy and then
/// reset, it would take the leader for dead, and an election that takes 0.2 s took 20.
#[test]
fn a_proxy_between_servers_waits_for_one_that_listens_later() {
    let port = testbed::ports::Port::claim();
    let proxy = Proxy::start_raw(port.addr());
    let mut early = TcpStream::connect(proxy.addr()).expect("the proxy listens");
    early.write_all(b"hello").expect("the proxy reads");
    early
        .set_read_timeout(Some(A_MOMENT))
        .expect("it is a socket");
    let quiet = early.read(&mut [0]).expect_err("no reset, no end");
    assert!(is_timeout(&quiet), "{quiet:?}");
    let late = std::net::TcpListener::bind(port.addr()).expect("the port is claimed");
    let (mut peer, _) = late.accept().expect("the proxy dials again");
    let mut heard = [0; 5];
    peer.read_exact(&mut heard).expect("it was kept");
    assert_eq!(&heard, b"hello");
}
