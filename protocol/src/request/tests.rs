//! Golden bytes.

use super::*;

fn create(form: CreateForm, mode: CreateMode) -> Request {
    Request::Create(Create {
        form,
        path: "/a".into(),
        data: Some(b"data".to_vec()),
        acl: [Acl::open()].into(),
        mode,
        ttl_ms: -1,
    })
}

/// What [`create`] looks like, but for the mode.
const NODE: &[u8] =
    b"\0\0\0\x02/a\0\0\0\x04data\0\0\0\x01\0\0\0\x1f\0\0\0\x05world\0\0\0\x06anyone";
const PATH: &[u8] = b"\0\0\0\x02/a";
const ANY: &[u8] = b"\xff\xff\xff\xff";

/// Every request of a client of locks is written as `zookeeper.jute` has it, and read again.
#[test]
fn requests_are_written_by_the_book() {
    let path = || "/a".to_owned();
    let version = ANY_VERSION;
    let unwatch = |kind| Request::RemoveWatches { path: path(), kind };
    let cases: Vec<(Request, i32, Vec<&[u8]>)> = vec![
        (
            create(CreateForm::Create, CreateMode::PERSISTENT),
            1,
            vec![NODE, b"\0\0\0\0"],
        ),
        (
            create(CreateForm::Create, CreateMode::EPHEMERAL),
            1,
            vec![NODE, b"\0\0\0\x01"],
        ),
        (
            create(CreateForm::Create2, CreateMode::EPHEMERAL_SEQUENTIAL),
            15,
            vec![NODE, b"\0\0\0\x03"],
        ),
        (
            Request::Delete {
                path: path(),
                version,
            },
            2,
            vec![PATH, ANY],
        ),
        (
            Request::Exists {
                path: path(),
                watch: true,
            },
            3,
            vec![PATH, b"\x01"],
        ),
        (
            Request::GetData {
                path: path(),
                watch: false,
            },
            4,
            vec![PATH, b"\0"],
        ),
        (
            Request::SetData {
                path: path(),
                data: Some(b"x".to_vec()),
                version: 7,
            },
            5,
            vec![PATH, b"\0\0\0\x01x", b"\0\0\0\x07"],
        ),
        (
            Request::GetChildren {
                path: path(),
                watch: true,
            },
            8,
            vec![PATH, b"\x01"],
        ),
        (Request::Sync { path: path() }, 9, vec![PATH]),
        (unwatch(WatchKind::CHILDREN), 18, vec![PATH, b"\0\0\0\x01"]),
        (unwatch(WatchKind::DATA), 18, vec![PATH, b"\0\0\0\x02"]),
        (
            Request::Multi(vec![
                Request::Check {
                    path: path(),
                    version,
                },
                Request::Delete {
                    path: path(),
                    version: 1,
                },
            ]),
            14,
            vec![
                b"\0\0\0\x0d\0\xff\xff\xff\xff",
                PATH,
                ANY,
                b"\0\0\0\x02\0\xff\xff\xff\xff",
                PATH,
                b"\0\0\0\x01",
                b"\xff\xff\xff\xff\x01\xff\xff\xff\xff",
            ],
        ),
    ];
    for (request, opcode, wanted) in cases {
        let mut writer = Writer::new();
        request.write(&mut writer);
        let written = writer.into_bytes();
        assert_eq!(written, wanted.concat(), "{request:?}");
        assert_eq!(request.opcode(), opcode);
        let mut reader = Reader::strict(&written);
        assert_eq!(Request::read(opcode, &mut reader), Ok(request));
        assert_eq!(reader.end(), Ok(()));
    }
}

#[test]
fn a_frame_is_appended_with_its_length() {
    let mut frames = b"before".to_vec();
    Writer::append_frame(&mut frames, |writer| writer.record(b"record"));
    assert_eq!(frames, b"before\0\0\0\x06record");
}
