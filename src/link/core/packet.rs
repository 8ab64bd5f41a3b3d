//! Requests as packets: how they are written, how long they are, and which can share one.

use zklock_protocol::{
    Expected, Request, RequestHeader, Writer, opcode, write_end_of_parts, write_part_header,
};

/// What can be seen of a request from outside: its kind and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::link) struct Shape {
    pub(in crate::link) opcode: i32,
    /// Of its frame, without the length before it.
    pub(in crate::link) bytes: usize,
}

/// A request that the server would not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) struct TooLarge {
    pub(in crate::link) bytes: usize,
}

/// How a request goes into one packet with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) enum Pack {
    /// Into a multi, which is done whole or not at all.
    Write,
    /// Among several lists, each of which is answered for itself.
    List,
    /// Not at all.
    Never,
}

/// Of a frame of [`pack`], before and behind its parts: its header, and the mark of its end.
pub(in crate::link) const PACK_BYTES: usize = 8 + PACK_PART_BYTES;
/// Before each part: its kind, whether it is the last, an error.
pub(in crate::link) const PACK_PART_BYTES: usize = 9;

/// Before a frame.
const LENGTH_BYTES: usize = 4;

/// Appends the frame of a request, whose number is still to be set, or nothing if it would be longer
/// than `most` without the length before it.
pub(in crate::link) fn encode(
    request: &Request,
    frames: &mut Vec<u8>,
    most: usize,
) -> Result<Shape, TooLarge> {
    assert!(
        !matches!(request, Request::Check { .. }),
        "servers do not survive a check outside of a multi"
    );
    let start = frames.len();
    let opcode = request.opcode();
    append(frames, opcode, |writer| request.write(writer));
    let bytes = frames.len() - start - LENGTH_BYTES;
    if bytes > most {
        frames.truncate(start);
        return Err(TooLarge { bytes });
    }
    Ok(Shape { opcode, bytes })
}

fn append(frames: &mut Vec<u8>, opcode: i32, record: impl FnOnce(&mut Writer)) {
    Writer::append_frame(frames, |writer| {
        // Its number, when it has one.
        RequestHeader { xid: 0, opcode }.write(writer);
        record(writer);
    });
}

/// Appends one frame, whose number is still to be set, for several requests of one kind of
/// [`Pack`]: their opcodes and records. Returns what its answer looks like.
pub(in crate::link) fn pack<'a>(
    kind: Pack,
    records: impl Iterator<Item = (i32, &'a [u8])>,
    frames: &mut Vec<u8>,
) -> (Shape, Expected) {
    let opcode = match kind {
        Pack::Write => opcode::MULTI,
        Pack::List => opcode::MULTI_READ,
        Pack::Never => unreachable!("goes by itself"),
    };
    let mut parts = Vec::new();
    append(frames, opcode, |writer| {
        for (opcode, record) in records {
            write_part_header(writer, opcode);
            writer.record(record);
            parts.push(opcode);
        }
        write_end_of_parts(writer);
    });
    // Their number and length are chance: it is the kind that servers may choke on.
    let shape = Shape { opcode, bytes: 0 };
    (shape, Expected::of_parts(opcode, parts.into()))
}

/// How a request can share a packet.
pub(in crate::link) fn pack_of(request: &Request) -> Pack {
    match request {
        Request::Create(_) | Request::Delete { .. } => Pack::Write,
        Request::GetChildren { watch: false, .. } => Pack::List,
        _ => Pack::Never,
    }
}

/// The folder of the node that a request creates.
pub(in crate::link) fn creates_in(request: &Request) -> Option<&str> {
    match request {
        Request::Create(node) => Some(node.path.rsplit_once('/').map_or("", |(folder, _)| folder)),
        _ => None,
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use zklock_protocol::{ANY_VERSION, Create, CreateForm, CreateMode};

    use super::*;

    fn delete() -> Request {
        Request::Delete {
            path: "/a".into(),
            version: 1,
        }
    }

    fn list() -> Request {
        Request::GetChildren {
            path: "/a".into(),
            watch: false,
        }
    }

    fn framed(request: &Request) -> Vec<u8> {
        let mut frame = Vec::new();
        encode(request, &mut frame, usize::MAX).expect("short");
        frame
    }

    /// Of requests that each have a frame.
    fn packed(kind: Pack, requests: &[Request]) -> Vec<u8> {
        let framed: Vec<_> = requests.iter().map(framed).collect();
        let each = requests.iter().zip(&framed);
        let records = each.map(|(request, frame)| (request.opcode(), &frame[12..]));
        let mut frames = b"before".to_vec();
        pack(kind, records, &mut frames);
        frames[6..].to_vec()
    }

    /// Writes that share a packet are a multi, and lists are what the book calls a multi read.
    #[test]
    fn requests_that_share_a_packet_are_a_request_of_the_book() {
        let create = Request::Create(Create {
            form: CreateForm::Create2,
            path: "/a".into(),
            data: Some(b"data".to_vec()),
            acl: [].into(),
            mode: CreateMode::EPHEMERAL_SEQUENTIAL,
            ttl_ms: -1,
        });
        let writes = [create, delete()];
        let multi = framed(&Request::Multi(writes.to_vec()));
        assert_eq!(packed(Pack::Write, &writes), multi);
        let lists = [list(), list()];
        let reads = framed(&Request::MultiRead(lists.to_vec()));
        assert_eq!(packed(Pack::List, &lists), reads);
    }

    #[test]
    fn a_request_over_the_limit_leaves_no_trace() {
        const MOST: usize = 1000;
        let request = |bytes| Request::SetData {
            path: "/a".into(),
            data: Some(vec![1; bytes]),
            version: ANY_VERSION,
        };
        let around = 4 + 4 + 6 + 4 + 4;
        let mut frames = b"before".to_vec();
        let most = MOST - around;
        assert!(encode(&request(most), &mut frames, MOST).is_ok());
        let before = frames.clone();
        let refused = encode(&request(most + 1), &mut frames, MOST);
        assert_eq!(refused, Err(TooLarge { bytes: MOST + 1 }));
        assert_eq!(frames, before);
    }

    #[test]
    #[should_panic(expected = "outside of a multi")]
    fn no_check_is_ever_sent_by_itself() {
        let version = ANY_VERSION;
        let path = "/a".to_owned();
        framed(&Request::Check { path, version });
    }
}
