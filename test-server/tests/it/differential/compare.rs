//! One server with its sessions, and what is seen of it.

use std::net::SocketAddr;

use zklock_protocol::{
    Children, ErrorCode, Event, Part, Reply, Request, RequestHeader, Stat, Writer,
};

use super::TIMEOUT;
use super::operation::{Operation, Step};
use crate::wire::{Answer, Wire};

/// What an operation has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) answer: Answer,
    /// Of each session.
    pub(crate) events: Vec<Vec<(i64, Event)>>,
}

/// Whether the server ends the connection of its own accord. It says so a moment after its answer,
/// and what is sent between the two may still be answered.
fn ends_connection(step: &Step, answer: &Answer) -> bool {
    match answer {
        Answer::End => !matches!(step, Step::Reconnect),
        Answer::Reply { zxid, error, .. } => {
            let is_unknown = *error == ErrorCode::UNIMPLEMENTED && *zxid == -1;
            is_unknown || *error == ErrorCode::AUTH_FAILED || matches!(step, Step::Close)
        }
    }
}

/// A server and its sessions.
pub(crate) struct World {
    address: SocketAddr,
    wires: Vec<Wire>,
    /// All ids that were ever given: their places are their names.
    ids: Vec<i64>,
}

impl World {
    pub(crate) fn new(address: SocketAddr, sessions: usize) -> Self {
        let mut world = Self {
            address,
            wires: Vec::new(),
            ids: Vec::new(),
        };
        for _ in 0..sessions {
            let wire = world.open();
            world.wires.push(wire);
        }
        world
    }

    fn open(&mut self) -> Wire {
        let wire = Wire::open(self.address, TIMEOUT).expect("the server serves");
        self.ids.push(wire.session.session_id);
        wire
    }

    pub(crate) fn play(&mut self, operation: &Operation) -> Sight {
        let at = operation.session;
        let mut answer = match &operation.step {
            Step::Ask(request) => self.wires[at].ask(request),
            Step::AskBytes { opcode, record } => {
                let header = RequestHeader {
                    xid: 4711,
                    opcode: *opcode,
                };
                let mut frame = Writer::frame(|writer| header.write(writer));
                frame.extend_from_slice(record);
                let length = u32::try_from(frame.len() - 4).expect("short");
                frame[..4].copy_from_slice(&length.to_be_bytes());
                self.wires[at].write(&frame).expect("it is open");
                self.wires[at].answer(*opcode, 4711)
            }
            Step::Close => self.wires[at].ask(&Request::CloseSession),
            Step::Reconnect => Ok(Answer::End),
        }
        .unwrap_or_else(|error| panic!("{error} after {operation:?}"));
        let ends = ends_connection(&operation.step, &answer);
        let events = self.drain(ends.then_some(at));
        match &operation.step {
            Step::Close => self.wires[at] = self.open(),
            Step::Reconnect => self.resume(at),
            _ if ends => self.resume(at),
            _ => {}
        }
        self.rename(&mut answer);
        Sight { answer, events }
    }

    /// What each session was told of.
    fn drain(&mut self, ended: Option<usize>) -> Vec<Vec<(i64, Event)>> {
        let sync = Request::Sync {
            path: "/".to_owned(),
        };
        for (number, wire) in self.wires.iter_mut().enumerate() {
            if Some(number) == ended {
                wire.read_to_end().expect("the server ends it");
                continue;
            }
            let answer = wire.ask(&sync).expect("it is open");
            assert_ne!(answer, Answer::End, "only the one that asked is cut");
        }
        let wires = self.wires.iter_mut();
        wires.map(|wire| std::mem::take(&mut wire.events)).collect()
    }

    /// Another connection for the session. Its earlier one has ended when this returns: a server
    /// forgets the watches of a connection before it closes it.
    fn resume(&mut self, at: usize) {
        let session = &self.wires[at].session;
        let wire = Wire::resume(self.address, TIMEOUT, session.session_id, &session.password);
        let wire = wire.expect("the server serves");
        assert_eq!(
            wire.session.session_id, session.session_id,
            "the session lives"
        );
        let mut before = std::mem::replace(&mut self.wires[at], wire);
        before.read_to_end().expect("the server ends it");
        assert_eq!(before.events, [], "it was drained");
    }

    fn rename(&self, answer: &mut Answer) {
        let Answer::Reply { reply, error, .. } = answer else {
            return;
        };
        if *error != ErrorCode::OK {
            return;
        }
        self.rename_in(reply);
    }

    fn rename_in(&self, reply: &mut Reply) {
        match reply {
            Reply::Created { stat, .. } | Reply::Stat(stat) | Reply::Data { stat, .. } => {
                self.rename_owner(stat);
            }
            Reply::Children(children) => sort(children),
            Reply::ChildrenAndStat { children, stat } => {
                sort(children);
                self.rename_owner(stat);
            }
            Reply::Acl { stat, .. } => self.rename_owner(stat),
            Reply::Parts(parts) => {
                for part in parts {
                    if let Part::Done(_, reply) = part {
                        self.rename_in(reply);
                    }
                }
            }
            Reply::Identities(identities) => identities.sort_unstable(),
            Reply::Nothing | Reply::Path(_) | Reply::Number(_) | Reply::Token(_) => {}
        }
    }

    fn rename_owner(&self, stat: &mut Stat) {
        (stat.ctime, stat.mtime) = (0, 0);
        if let Some(name) = self.ids.iter().position(|id| *id == stat.ephemeral_owner) {
            stat.ephemeral_owner = 1 + i64::try_from(name).expect("few");
        }
    }
}

fn sort(children: &mut Children) {
    let mut names = children.to_vec();
    names.sort_unstable();
    *children = names.into_iter().collect();
}
