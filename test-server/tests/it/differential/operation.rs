//! What sessions do, by chance: mostly what makes sense, on few nodes, so that they meet.

use zklock_protocol::{Acl, Create, CreateForm, CreateMode, Request, SetWatches, WatchKind};

use super::chance::Chance;

/// What one session does.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) session: usize,
    pub(crate) step: Step,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Ask(Request),
    /// A record that cannot be read, or a request that nobody knows.
    AskBytes {
        opcode: i32,
        record: Vec<u8>,
    },
    /// Ends the session; another takes its place.
    Close,
    /// Breaks the connection and makes another one for the session.
    Reconnect,
}

const PATHS: [&str; 12] = [
    "/a",
    "/a/b",
    "/a/b/c",
    "/a/d",
    "/e",
    "/e/f",
    "/e/f/g",
    "/h",
    "/h/i-",
    "/a/b/lock-",
    "/e/n",
    "/h/i-0000000000",
];

const ODD_PATHS: [&str; 18] = [
    "/",
    "",
    "a",
    "a/b",
    "b/a/c",
    "/a/",
    "//",
    "/a//b",
    "/a/.",
    "/a/../e",
    "/a/\u{1}",
    "/a/\0b",
    "/\u{e000}",
    "/🔒",
    "/zookeeper",
    "/zookeeper/quota",
    "/zookeeper/config",
    "/ä",
];

impl Operation {
    pub(crate) fn random(chance: &mut Chance, sessions: usize) -> Self {
        let session = chance.below(sessions);
        let step = match chance.below(1000) {
            0..4 => Step::Close,
            4..8 => Step::Reconnect,
            8..16 => bytes(chance),
            16..22 => Step::Ask(Request::Auth {
                scheme: chance
                    .pick(&["digest", "digest", "digest", "ip", "world", "sasl"])
                    .to_owned(),
                credentials: chance.pick(&["u:p", "v:q", "nobody", ""]).into(),
            }),
            _ => Step::Ask(request(chance)),
        };
        Self { session, step }
    }
}

fn path(chance: &mut Chance) -> String {
    if chance.one_in(40) {
        chance.pick(&ODD_PATHS).to_owned()
    } else {
        chance.pick(&PATHS).to_owned()
    }
}

/// Watches can be asked for on whatever is written.
fn watched_path(chance: &mut Chance) -> String {
    if chance.one_in(8) {
        chance.pick(&ODD_PATHS).to_owned()
    } else {
        path(chance)
    }
}

fn paths(chance: &mut Chance) -> Vec<String> {
    (0..chance.below(4)).map(|_| watched_path(chance)).collect()
}

fn version(chance: &mut Chance) -> i32 {
    chance.pick(&[-1, -1, -1, -1, 0, 1, 2, 77])
}

fn data(chance: &mut Chance) -> Option<Vec<u8>> {
    chance.pick(&[
        Some(b"some".to_vec()),
        Some(Vec::new()),
        Some(b"other data".to_vec()),
        None,
    ])
}

fn acl(chance: &mut Chance) -> Vec<Acl> {
    let line = |permissions, scheme: &str, id: &str| Acl {
        permissions,
        scheme: scheme.to_owned(),
        id: id.to_owned(),
    };
    if chance.below(10) < 7 {
        return vec![Acl::open()];
    }
    let lines = [
        Acl::open(),
        line(1, "world", "anyone"),
        line(15, "world", "anyone"),
        line(31, "auth", ""),
        line(29, "digest", "u:cMWbUtbEV8ZZ7qJTkYnLgn8Lbzk="),
        line(30, "ip", "127.0.0.1"),
        line(31, "ip", "10.0.0.0/8"),
        line(31, "ip", "127.0.0.0/8"),
        line(31, "ip", "nowhere"),
        line(31, "ip", "::1"),
        line(31, "ip", "fe80::/10"),
        line(31, "ip", "fe80::/129"),
        line(31, "world", "somebody"),
        line(31, "digest", "nothing"),
        line(31, "foreign", "x"),
        line(0, "world", "anyone"),
        line(64, "world", "anyone"),
    ];
    (0..chance.below(4)).map(|_| chance.pick(&lines)).collect()
}

fn create(chance: &mut Chance) -> Request {
    let (form, flags) = match chance.below(40) {
        0..14 => (CreateForm::Create, chance.pick(&[0, 1, 2, 3])),
        14..34 => (CreateForm::Create2, chance.pick(&[0, 0, 1, 2, 3])),
        34..38 => (CreateForm::Container, 4),
        // Not allowed unless a server was told so.
        38 => (CreateForm::Ttl, chance.pick(&[5, 6, 0])),
        _ => (CreateForm::Create, chance.pick(&[5, 6, 7, -1])),
    };
    Request::Create(Create {
        form,
        path: path(chance),
        data: data(chance),
        acl: acl(chance).into(),
        mode: CreateMode(flags),
        ttl_ms: if form == CreateForm::Ttl { 1000 } else { -1 },
    })
}

fn write(chance: &mut Chance) -> Request {
    match chance.below(20) {
        0..10 => create(chance),
        10..16 => Request::Delete {
            path: path(chance),
            version: version(chance),
        },
        _ => Request::SetData {
            path: path(chance),
            data: data(chance),
            version: version(chance),
        },
    }
}

fn multi(chance: &mut Chance) -> Request {
    let count = chance.below(5);
    let mut steps = Vec::new();
    while steps.len() < count {
        let step = match chance.below(5) {
            0 => Request::Check {
                path: path(chance),
                version: version(chance),
            },
            _ => write(chance),
        };
        // Servers do not survive this one: it is read as one kind and cast to another.
        let is_ttl = matches!(&step, Request::Create(create) if create.form == CreateForm::Ttl);
        if !is_ttl {
            steps.push(step);
        }
    }
    Request::Multi(steps)
}

fn request(chance: &mut Chance) -> Request {
    let watch = chance.one_in(2);
    match chance.below(100) {
        0..32 => write(chance),
        32..42 => multi(chance),
        42..50 => Request::Exists {
            path: path(chance),
            watch,
        },
        50..58 => Request::GetData {
            path: path(chance),
            watch,
        },
        58..63 => Request::GetChildren {
            path: path(chance),
            watch,
        },
        63..69 => Request::GetChildren2 {
            path: path(chance),
            watch,
        },
        69..71 => Request::GetAcl { path: path(chance) },
        71..74 => Request::SetAcl {
            path: path(chance),
            acl: acl(chance),
            version: version(chance),
        },
        74..77 => Request::MultiRead(several_reads(chance)),
        77..80 => Request::GetEphemerals {
            prefix: chance.pick(&["/", "", "/a", "/e/f", "/none"]).to_owned(),
        },
        80..82 => Request::GetAllChildrenNumber { path: path(chance) },
        82..83 => Request::WhoAmI,
        83..84 => Request::Ping,
        84..88 => Request::AddWatch {
            path: watched_path(chance),
            mode: chance.pick(&[0, 0, 0, 1, 1, 1, 2]),
        },
        88..92 => Request::RemoveWatches {
            path: watched_path(chance),
            kind: WatchKind(chance.pick(&[1, 2, 3, 3, 4, 5, 9])),
        },
        92..94 => Request::CheckWatches {
            path: watched_path(chance),
            kind: WatchKind(chance.pick(&[1, 2, 3, 3, 4, 5, 9])),
        },
        94..97 => Request::SetWatches(SetWatches {
            relative_zxid: i64::try_from(chance.below(4000)).expect("small"),
            data: paths(chance),
            exist: paths(chance),
            children: paths(chance),
            persistent: chance.one_in(2).then(|| (paths(chance), paths(chance))),
        }),
        97..98 => Request::Reconfig {
            joining: None,
            leaving: chance.pick(&[None, Some("1".to_owned())]),
            members: None,
            config_id: -1,
        },
        _ => Request::Sync { path: path(chance) },
    }
}

fn several_reads(chance: &mut Chance) -> Vec<Request> {
    let read = |chance: &mut Chance| {
        let path = path(chance);
        if chance.one_in(2) {
            Request::GetData { path, watch: false }
        } else {
            Request::GetChildren { path, watch: false }
        }
    };
    (0..chance.below(4)).map(|_| read(chance)).collect()
}

fn bytes(chance: &mut Chance) -> Step {
    let opcode = chance.pick(&[1, 2, 4, 5, 6, 8, 12, 14, 16, 22, 101, 999, 0, 10, 23]);
    let record = chance.pick(&[
        b"".to_vec(),
        b"\0\0\0\x09/a".to_vec(),
        b"\xff\xff\xff\xff\0\0\0\0".to_vec(),
        b"\x7f\0\0\0/a".to_vec(),
        b"\0\0\0\x02/a\0\0\0\x01".to_vec(),
    ]);
    Step::AskBytes { opcode, record }
}
