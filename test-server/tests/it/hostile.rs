//! Bytes that no client sends. They end their connection, or are refused; the server goes on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use zklock_protocol::{Acl, Create, CreateForm, CreateMode, Request, RequestHeader, Writer};
use zklock_test::Server;

use crate::wire::{Answer, Wire};

const T: Duration = Duration::from_secs(10);

/// Requests of many kinds, as frames.
fn good_frames() -> Vec<Vec<u8>> {
    let path = || "/a".to_owned();
    let create = Create {
        form: CreateForm::Create2,
        path: path(),
        data: Some(b"data".to_vec()),
        acl: [Acl::open()].into(),
        mode: CreateMode::EPHEMERAL_SEQUENTIAL,
        ttl_ms: -1,
    };
    let requests = [
        Request::Create(create.clone()),
        Request::Multi(vec![
            Request::Create(create),
            Request::Check {
                path: path(),
                version: -1,
            },
        ]),
        Request::GetChildren2 {
            path: path(),
            watch: true,
        },
        Request::SetData {
            path: path(),
            data: None,
            version: 3,
        },
        Request::MultiRead(vec![Request::GetData {
            path: path(),
            watch: false,
        }]),
    ];
    let frame = |request: &Request| {
        let header = RequestHeader {
            xid: 1,
            opcode: request.opcode(),
        };
        Writer::frame(|writer| {
            header.write(writer);
            request.write(writer);
        })
    };
    requests.iter().map(frame).collect()
}

/// Whether a client that does nothing wrong is served.
fn serves(server: &Server) -> bool {
    let mut wire = Wire::open(server.address(), T).expect("it accepts");
    let sync = Request::Sync {
        path: "/".to_owned(),
    };
    matches!(wire.ask(&sync), Ok(Answer::Reply { .. }))
}

/// Sends bytes, and reads what comes until the end.
fn throw(mut stream: TcpStream, bytes: &[u8]) {
    // The server may have ended the connection in the middle of it.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    stream.set_read_timeout(Some(T)).expect("a socket");
    let mut rest = Vec::new();
    let read = stream.read_to_end(&mut rest);
    assert!(
        !matches!(&read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock),
        "the connection ends"
    );
}

#[test]
fn random_bytes_end_their_connection_and_nothing_else() {
    let server = Server::start().expect("a port");
    let mut runner = proptest::test_runner::TestRunner::default();
    let outcome = runner.run(&vec(any::<u8>(), 0..200), |bytes| {
        throw(
            TcpStream::connect(server.address()).expect("it accepts"),
            &bytes,
        );
        Ok(())
    });
    outcome.expect("every connection ends");
    assert!(serves(&server));
}

#[test]
fn random_edits_of_good_frames_do_no_harm() {
    let server = Server::start().expect("a port");
    let good = good_frames();
    let edits = vec((any::<prop::sample::Index>(), any::<u8>()), 1..4);
    let mut runner = proptest::test_runner::TestRunner::default();
    let outcome = runner.run(
        &(0..good.len(), edits, any::<bool>()),
        |(which, edits, cut)| {
            let mut bytes = good[which].clone();
            for (at, value) in edits {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            if cut {
                bytes.truncate(bytes.len() / 2);
            }
            let mut wire = Wire::open(server.address(), T).expect("it accepts");
            wire.write(&bytes).expect("it is open");
            throw(wire.into_stream(), &[]);
            Ok(())
        },
    );
    outcome.expect("every connection ends");
    assert!(serves(&server));
}

#[test]
fn a_frame_that_is_too_long_ends_its_connection() {
    let server = Server::builder().max_frame(100).start().expect("a port");
    let mut wire = Wire::open(server.address(), T).expect("it accepts");
    let sync = |length: usize| Request::Sync {
        path: "/".repeat(length),
    };
    // 8 bytes of header and 4 of length are before it.
    assert!(matches!(wire.ask(&sync(88)), Ok(Answer::Reply { .. })));
    assert_eq!(wire.ask(&sync(89)).expect("it is read"), Answer::End);
    assert!(serves(&server));
}
