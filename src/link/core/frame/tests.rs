//! Frames, whole and cut, long and lying.

use zklock_protocol::EventKind;

use super::*;

/// Everything that `stream` brings, in reads of `step` bytes; `false` for what was too long.
fn cut(stream: &[u8], step: usize, buffer: &mut FrameBuffer) -> Vec<(i32, bool)> {
    let mut seen = Vec::new();
    for mut part in stream.chunks(step) {
        while !part.is_empty() {
            buffer.fill(&mut part).expect("memory");
            loop {
                match buffer.next() {
                    Next::Frame(frame) => seen.push((frame.reply_header().xid, true)),
                    Next::TooLong(frame) => seen.push((frame.reply_header().xid, false)),
                    Next::Incomplete => break,
                    Next::Malformed => panic!("well-formed"),
                }
            }
        }
    }
    seen
}

#[test]
fn handshakes_round_trip() {
    let request = ConnectRequest {
        last_zxid_seen: 5,
        timeout_ms: 10_000,
        session_id: -7,
        password: vec![1; 16],
    };
    let frame = request.to_frame();
    // Old clients and servers leave out the last byte, readOnly.
    for body in [&frame[4..], &frame[4..frame.len() - 1]] {
        assert_eq!(ConnectRequest::parse(body).as_ref(), Some(&request));
    }
    let response = ConnectResponse {
        protocol: 42,
        timeout_ms: 4000,
        session_id: 9,
        password: vec![2; 16],
    };
    let frame = response.to_frame();
    for body in [&frame[4..], &frame[4..frame.len() - 1]] {
        assert!(ConnectResponse::parse(body).is_some_and(|read| read == response));
    }
    for short in 0..20 {
        assert!(ConnectResponse::parse(&frame[4..4 + short]).is_none());
        assert!(ConnectRequest::parse(&frame[4..4 + short]).is_none());
    }
}

#[test]
fn a_password_longer_than_its_frame_is_refused() {
    let mut frame = ConnectResponse {
        protocol: PROTOCOL,
        timeout_ms: 1,
        session_id: 1,
        password: vec![0; 16],
    }
    .to_frame();
    frame[20..24].copy_from_slice(&i32::MAX.to_be_bytes());
    assert!(ConnectResponse::parse(&frame[4..]).is_none());
}

/// However the bytes are cut, the same frames come out.
#[test]
fn frames_come_out_whole() {
    let mut stream = Vec::new();
    for xid in 1..=5 {
        stream.extend(reply(xid, -xid));
    }
    for step in 1..stream.len() {
        let mut buffer = FrameBuffer::new(REPLY_HEADER_BYTES, MAX_REPLY_BYTES);
        let seen = cut(&stream, step, &mut buffer);
        let wanted: Vec<_> = (1..=5).map(|xid| (xid, true)).collect();
        assert_eq!(seen, wanted, "in steps of {step}");
    }
}

/// A reply of more than `most` bytes, 300,000.
fn too_long(xid: i32) -> Vec<u8> {
    framed(|frame| {
        frame.extend(&reply(xid, 0)[LENGTH_BYTES..]);
        frame.resize(LENGTH_BYTES + 300_000, 0);
    })
}

#[test]
fn what_is_too_long_is_left_out_without_being_kept() {
    let stream: Vec<u8> = [reply(6, 0), too_long(7), reply(8, 0)].concat();
    for step in [1000, 4096, 65_536, stream.len()] {
        let mut buffer = FrameBuffer::new(REPLY_HEADER_BYTES, 100);
        let seen = cut(&stream, step, &mut buffer);
        assert_eq!(seen, [(6, true), (7, false), (8, true)]);
        assert_eq!(buffer.bytes.len(), CHUNK_BYTES);
    }
}

/// The crate panics at an answer to a request that it has not written to its end.
#[test]
fn what_is_too_long_is_told_after_its_last_byte() {
    let stream = too_long(7);
    let mut buffer = FrameBuffer::new(REPLY_HEADER_BYTES, 100);
    let (most, last) = stream.split_at(stream.len() - 1);
    assert_eq!(cut(most, 1000, &mut buffer), []);
    assert_eq!(cut(last, 1, &mut buffer), [(7, false)]);
}

#[test]
fn a_large_reply_grows_the_buffer_for_a_while_only() {
    let stream: Vec<u8> = [too_long(1), reply(2, 0)].concat();
    let mut buffer = FrameBuffer::new(REPLY_HEADER_BYTES, MAX_REPLY_BYTES);
    let seen = cut(&stream, 10_000, &mut buffer);
    assert_eq!(seen, [(1, true), (2, true)]);
    cut(&reply(3, 0), 100, &mut buffer);
    assert_eq!(buffer.bytes.len(), CHUNK_BYTES);
}

#[test]
fn events_say_what_happened_and_where() {
    let told = |frame: Vec<u8>| {
        let event = node_event(&frame[LENGTH_BYTES..]);
        event.map(|(event, path)| (event, path.to_owned()))
    };
    let each = [
        EventKind::NodeCreated,
        EventKind::NodeDeleted,
        EventKind::NodeDataChanged,
        EventKind::NodeChildrenChanged,
    ];
    for (event_type, event) in (1..).zip(each) {
        let wanted = Some((event, "/a".to_owned()));
        assert_eq!(told(watch_event(event_type, b"/a")), wanted);
    }
    // What is about no node, that a watch was removed, and PersistentWatchRemoved of newer servers.
    for event_type in [-1, 5, 6, 7] {
        assert_eq!(told(watch_event(event_type, b"/a")), None);
    }
    assert_eq!(told(watch_event(1, b"/\xff")), None);
    assert_eq!(told(reply(XID_WATCH, 0)), None);
    let whole = watch_event(2, b"/a");
    for short in LENGTH_BYTES..whole.len() {
        assert_eq!(told(whole[..short].to_vec()), None, "{short} bytes");
    }
}

#[test]
fn nonsense_is_recognised() {
    for length in [-1, 0, 15] {
        let mut bytes = &i32::to_be_bytes(length)[..];
        let mut buffer = FrameBuffer::new(REPLY_HEADER_BYTES, MAX_REPLY_BYTES);
        buffer.fill(&mut bytes).expect("memory");
        assert!(matches!(buffer.next(), Next::Malformed), "{length}");
    }
}

/// A length is only a claim.
#[test]
fn memory_grows_with_what_came_and_not_with_what_was_claimed() {
    let claim = i32::try_from(MAX_REPLY_BYTES).expect("fits");
    let mut stream = claim.to_be_bytes().to_vec();
    stream.resize(CHUNK_BYTES * 3, 0);
    let mut buffer = FrameBuffer::new(REPLY_HEADER_BYTES, MAX_REPLY_BYTES);
    assert_eq!(cut(&stream[..100], 100, &mut buffer), []);
    assert_eq!(buffer.bytes.len(), CHUNK_BYTES);
    assert_eq!(cut(&stream[100..], 5000, &mut buffer), []);
    assert!(buffer.bytes.len() <= CHUNK_BYTES * 4);
}
