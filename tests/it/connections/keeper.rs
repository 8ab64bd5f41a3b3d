//! Servers that are not quite ZooKeeper's: ClickHouse Keeper, and releases that lack a request.
//!
//! They hang up on what they do not know, raise the session timeout to 10 s, and count sequence
//! numbers in 64 bits. (What they do at a resume, and a handshake of version 42, is told beside the
//! link, in `src/link/tests/sessions.rs`.)

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use testbed::proxy::Matcher;
use testbed::{Action, Proxy, Server, opcode};
use zklock::{Client, ConnectionEvent, MultiLock, MultiLockBuilder};

use crate::fixtures::{SOON, T, mutex, wait_for_children};

/// Of the handshake it grants.
const LEAST_TIMEOUT: Duration = Duration::from_secs(10);

const MULTI_READ: i32 = 22;
const UNIMPLEMENTED: i32 = -6;

/// A server that knows as much as it takes to queue alone, and gives every sequential node the same
/// number.
fn keeper(number: &'static str) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream, number));
        }
    });
    address.to_string()
}

/// Until the client hangs up.
fn serve(mut stream: TcpStream, number: &str) {
    let mut nodes = Vec::new();
    let Some(_hello) = receive(&mut stream) else {
        return;
    };
    let timeout_ms = i32::try_from(LEAST_TIMEOUT.as_millis()).expect("small");
    let mut hello = [0_i32.to_be_bytes(), timeout_ms.to_be_bytes()].concat();
    hello.extend(7_i64.to_be_bytes());
    hello.extend(text(&[1; 16]));
    hello.push(0);
    send(&mut stream, &hello);
    while let Some(request) = receive(&mut stream) {
        let (xid, opcode) = (int(&request, 0), int(&request, 4));
        let mut fields = Fields(&request[8..]);
        let (mut error, mut record) = (0, Vec::new());
        match opcode {
            opcode::CREATE | opcode::CREATE2 => {
                record.extend(create(&mut fields, &mut nodes, number));
                if opcode == opcode::CREATE2 {
                    record.extend([0; 68]);
                }
            }
            opcode::GET_CHILDREN => {
                let folder = fields.text();
                let names = nodes.iter().filter_map(|node| node.rsplit_once('/'));
                let names = names.filter(|(parent, _)| *parent == folder);
                let names: Vec<_> = names.map(|(_, name)| text(name.as_bytes())).collect();
                let count = i32::try_from(names.len()).expect("few");
                record.extend(count.to_be_bytes());
                record.extend(names.concat());
            }
            opcode::MULTI => record.extend(multi(&mut fields, &mut nodes, number)),
            MULTI_READ => error = UNIMPLEMENTED,
            _ => {}
        }
        let mut reply = xid.to_be_bytes().to_vec();
        reply.extend(1_i64.to_be_bytes());
        reply.extend(i32::to_be_bytes(error));
        reply.extend(record);
        send(&mut stream, &reply);
    }
}

/// Makes a node. Returns what it is answered with: its path.
fn create(fields: &mut Fields<'_>, nodes: &mut Vec<String>, number: &str) -> Vec<u8> {
    let (mut path, _data) = (fields.text(), fields.text());
    for _ in 0..fields.int() {
        let (_permissions, _scheme, _id) = (fields.int(), fields.text(), fields.text());
    }
    let is_sequential = fields.int() & 2 != 0;
    if is_sequential {
        path.push_str(number);
    }
    let answer = text(path.as_bytes());
    nodes.push(path);
    answer
}

/// Makes and removes nodes. Returns the results of all steps.
fn multi(fields: &mut Fields<'_>, nodes: &mut Vec<String>, number: &str) -> Vec<u8> {
    let header = |kind: i32, is_end: bool, error: i32| {
        [
            &kind.to_be_bytes()[..],
            &[u8::from(is_end)],
            &error.to_be_bytes(),
        ]
        .concat()
    };
    let mut results = Vec::new();
    loop {
        let kind = fields.step();
        match kind {
            opcode::CREATE => {
                results.extend(header(kind, false, 0));
                results.extend(create(fields, nodes, number));
            }
            opcode::DELETE => {
                let (path, _version) = (fields.text(), fields.int());
                nodes.retain(|node| *node != path);
                results.extend(header(kind, false, 0));
            }
            _ => {
                results.extend(header(-1, true, -1));
                return results;
            }
        }
    }
}

/// What is left of a request.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take(&mut self, count: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn int(&mut self) -> i32 {
        int(self.take(4), 0)
    }

    fn text(&mut self) -> String {
        let length = usize::try_from(self.int()).expect("a length");
        String::from_utf8(self.take(length).to_vec()).expect("a text")
    }

    /// The header of a step: its kind.
    fn step(&mut self) -> i32 {
        let kind = self.int();
        let (_is_end, _error) = (self.take(1)[0], self.int());
        kind
    }
}

fn receive(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let length = usize::try_from(i32::from_be_bytes(length)).ok()?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}

fn send(stream: &mut TcpStream, body: &[u8]) {
    // The client may have gone.
    let _ = stream.write_all(&text(body));
}

/// A length, and as many bytes.
fn text(bytes: &[u8]) -> Vec<u8> {
    let length = i32::try_from(bytes.len()).expect("small");
    [&length.to_be_bytes(), bytes].concat()
}

fn int(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[test]
fn a_longer_timeout_than_asked_for_is_the_one_that_counts() {
    let client = Client::builder(&keeper("0000000007"))
        .session_timeout(T)
        .connect()
        .expect("it serves");
    assert_eq!(client.session_timeout(), Some(LEAST_TIMEOUT));
    let lock = mutex(&client, "/keeper/lock");
    let guard = lock.lock().expect("alone");
    assert!(guard.path().ends_with("0000000007"));
    guard.unlock().expect("ours");
}

/// Its own node was taken for gone, and the lock was asked for again, for ever.
#[test]
fn a_sequence_number_beyond_zookeepers_is_refused() {
    let client = Client::connect(&keeper("2147483648")).expect("it serves");
    let error = mutex(&client, "/keeper/lock")
        .try_lock_for(SOON)
        .map(drop)
        .expect_err("no order");
    assert!(!error.is_timeout(), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("2147483648") && text.contains("/keeper/lock"),
        "{text}"
    );
}

/// Of several locks at once: in their lists such a node of ours would be taken for gone, and somebody else for ahead.
#[test]
fn sequence_numbers_beyond_zookeepers_are_refused_together() {
    let client = Client::connect(&keeper("2147483648")).expect("it serves");
    let locks = ["/keeper/a", "/keeper/b"].map(|path| mutex(&client, path));
    let both = locks
        .iter()
        .fold(MultiLock::builder(), MultiLockBuilder::with);
    let both = both.build().expect("two paths");
    let tried = both.try_lock().map(|guard| guard.is_some());
    let waited = both.try_lock_for(SOON).map(|guard| guard.is_some());
    for error in [tried, waited] {
        let error = error.expect_err("no order");
        assert!(!error.is_timeout(), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("2147483648") && text.contains("/keeper/a"),
            "{text}"
        );
    }
    let again = Client::connect(&keeper("2147483647")).expect("it serves");
    let locks = ["/keeper/a", "/keeper/b"].map(|path| mutex(&again, path));
    let both = locks
        .iter()
        .fold(MultiLock::builder(), MultiLockBuilder::with);
    let both = both.build().expect("two paths").try_lock();
    assert!(both.expect("answers").is_some(), "the last of them is good");
}

/// Taking a watch off breaks the connection, and the watch goes with it: nothing is tried again.
#[test]
fn a_server_without_remove_watches_loses_a_connection_for_each() {
    let server = Server::start();
    let proxy = Proxy::start(server.addr());
    let unknown = proxy.on_request(Matcher::every(opcode::REMOVE_WATCHES), Action::Reset);
    let holder = crate::fixtures::client_at(&server.connect_string());
    let held = mutex(&holder, "/keeper/watched");
    let guard = held.lock().expect("free");
    let client = crate::fixtures::client_at(&proxy.connect_string());
    let session = client.session_id();
    let events = client.events();
    let lock = mutex(&client, "/keeper/watched");
    let busy = lock.try_lock_for(Duration::from_millis(200));
    assert!(busy.expect("no error").is_none());
    while events.recv_timeout(SOON).expect("it lives") != ConnectionEvent::Reconnected {}
    assert_eq!(client.session_id(), session);
    wait_for_children(&server, "/keeper/watched", 1);
    guard.unlock().expect("ours");
    lock.lock().expect("free").unlock().expect("ours");
    assert_eq!(unknown.times_sprung(), 1);
}

/// It costs two connections, once; from then on a create that every server knows is used, and the
/// token is asked for when it is wanted.
#[test]
fn a_server_that_hangs_up_on_create2_is_spoken_to_in_older_words() {
    let server = Server::start();
    let proxy = Proxy::start(server.addr());
    let unknown = proxy.on_request(Matcher::every(opcode::CREATE2), Action::Reset);
    let client = crate::fixtures::client_at(&proxy.connect_string());
    let session = client.session_id();
    let lock = mutex(&client, "/keeper/older");
    let first = lock.lock().expect("in the end");
    let token = first.fencing_token().expect("asked for");
    first.unlock().expect("ours");
    let second = lock.lock().expect("free");
    assert!(second.fencing_token().expect("asked for") > token);
    assert_eq!(client.session_id(), session);
    assert_eq!(unknown.times_sprung(), 2);
}
