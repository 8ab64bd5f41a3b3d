//! Writes: what is checked, in which order, and what they change.
//!
//! As in ZooKeeper, a write is first prepared (checked against the tree and against what earlier
//! steps of the same multi are about to do), and then applied, which cannot fail. A write that
//! fails uses up a transaction's number all the same.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use zklock_protocol::{
    Acl, Create, CreateForm, CreateMode, ErrorCode, EventKind, Part, Reply, Request, opcode,
    permission,
};

use super::acl::{self, Identity};
use super::paths::{self, is_special, is_valid, parent, shown};
use super::tree::{CONTAINER_OWNER, Moment, Tree, is_session};
use super::{ConnectionId, Core, Line};

/// Who asks.
pub(crate) struct Caller<'a> {
    pub(crate) session: i64,
    pub(crate) identities: &'a [Identity],
    /// What the server behaves as.
    pub(crate) line: Line,
}

/// A write that can be applied.
#[derive(Clone, Debug)]
pub(crate) enum Txn {
    Create {
        /// As what its answer is known.
        opcode: i32,
        path: String,
        data: Option<Vec<u8>>,
        acl: Arc<[Acl]>,
        owner: i64,
        parent_cversion: i32,
    },
    Delete {
        path: String,
    },
    SetData {
        path: String,
        data: Option<Vec<u8>>,
        version: i32,
    },
    SetAcl {
        path: String,
        acl: Arc<[Acl]>,
        version: i32,
    },
    Check,
}

/// What a node will be when the steps so far have been applied.
#[derive(Clone, Debug)]
struct Record {
    acl: Arc<[Acl]>,
    version: i32,
    cversion: i32,
    aversion: i32,
    owner: i64,
    children: usize,
}

/// The records that the steps so far have changed; none where they delete the node.
#[derive(Default)]
struct Pending(HashMap<String, Option<Record>>);

impl Pending {
    fn get(&self, tree: &Tree, path: &str) -> Result<Record, ErrorCode> {
        let record = match self.0.get(path) {
            Some(record) => record.clone(),
            None => tree.get(path).map(|node| {
                let stat = node.kept();
                Record {
                    acl: Arc::clone(&node.acl),
                    version: stat.version,
                    cversion: stat.cversion,
                    aversion: stat.aversion,
                    owner: stat.ephemeral_owner,
                    children: node.children.len(),
                }
            }),
        };
        record.ok_or(ErrorCode::NO_NODE)
    }

    fn set(&mut self, path: &str, record: Option<Record>) {
        self.0.insert(path.to_owned(), record);
    }
}

/// What is to be done for one request.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    One(Txn),
    /// A multi, whole.
    All(Vec<Txn>),
    /// A multi of which nothing is done, and what each step gets.
    Nothing(Vec<ErrorCode>),
}

impl Plan {
    pub(crate) fn txns(&self) -> &[Txn] {
        match self {
            Self::One(txn) => std::slice::from_ref(txn),
            Self::All(txns) => txns,
            Self::Nothing(_) => &[],
        }
    }
}

/// Checks the write that somebody asks for.
pub(crate) fn plan(tree: &Tree, caller: &Caller<'_>, request: Request) -> Result<Plan, ErrorCode> {
    let steps = match request {
        Request::Reconfig { .. } => return Err(ErrorCode::RECONFIG_DISABLED),
        // Corrupts the database of servers that take it outside of a multi.
        Request::Check { .. } => return Err(ErrorCode::UNIMPLEMENTED),
        Request::Multi(steps) => steps,
        request => return prepare(tree, caller, request).map(Plan::One),
    };
    if !steps.iter().all(|step| is_write(step.opcode())) {
        return Err(ErrorCode::MARSHALLING_ERROR);
    }
    match prepare_all(tree, caller, steps) {
        Ok(txns) => Ok(Plan::All(txns)),
        Err(Refused::Each(codes)) => Ok(Plan::Nothing(codes)),
        Err(Refused::Unread) => Err(ErrorCode::MARSHALLING_ERROR),
    }
}

/// Whether a request of this number changes nodes.
pub(crate) fn is_write(number: i32) -> bool {
    matches!(
        number,
        opcode::CREATE
            | opcode::CREATE_2
            | opcode::CREATE_CONTAINER
            | opcode::CREATE_TTL
            | opcode::DELETE
            | opcode::SET_DATA
            | opcode::SET_ACL
            | opcode::CHECK
            | opcode::MULTI
            | opcode::RECONFIG
    )
}

/// Checks one write.
fn prepare(tree: &Tree, caller: &Caller<'_>, request: Request) -> Result<Txn, ErrorCode> {
    step(tree, &mut Pending::default(), caller, request)
}

/// Why several writes are not done.
#[derive(Debug)]
enum Refused {
    /// The whole, as if its record could not be read.
    Unread,
    /// What each gets.
    Each(Vec<ErrorCode>),
}

/// Checks several, of which each sees what those before it are about to do.
fn prepare_all(tree: &Tree, caller: &Caller<'_>, steps: Vec<Request>) -> Result<Vec<Txn>, Refused> {
    let count = steps.len();
    let mut pending = Pending::default();
    let mut prepared = Vec::with_capacity(count);
    let read = |request| as_step(request, caller.line);
    let steps: Vec<_> = steps.into_iter().map(read).collect();
    // Up to 3.8 an odd step is found when its turn comes, and an earlier one may be refused first.
    if caller.line == Line::V3_9 && steps.iter().any(Option::is_none) {
        return Err(Refused::Unread);
    }
    for request in steps {
        let request = request.ok_or(Refused::Unread)?;
        match step(tree, &mut pending, caller, request) {
            Ok(txn) => prepared.push(txn),
            Err(code) => {
                let mut codes = vec![ErrorCode::OK; prepared.len()];
                codes.push(code);
                codes.resize(count, ErrorCode::RUNTIME_INCONSISTENCY);
                return Err(Refused::Each(codes));
            }
        }
    }
    Ok(prepared)
}

fn step(
    tree: &Tree,
    pending: &mut Pending,
    caller: &Caller<'_>,
    request: Request,
) -> Result<Txn, ErrorCode> {
    match request {
        Request::Create(create) => prepare_create(tree, pending, caller, create),
        Request::Delete { path, version } => {
            let above = parent(&path).filter(|_| !path.contains('\0') && !is_special(&path));
            let above = above.ok_or(ErrorCode::BAD_ARGUMENTS)?;
            let mut parent_record = pending.get(tree, above)?;
            acl::check(&parent_record.acl, permission::DELETE, caller.identities)?;
            let record = pending.get(tree, &path)?;
            check_version(record.version, version)?;
            if record.children > 0 {
                return Err(ErrorCode::NOT_EMPTY);
            }
            parent_record.children -= 1;
            pending.set(above, Some(parent_record));
            pending.set(&path, None);
            Ok(Txn::Delete { path })
        }
        Request::SetData {
            path,
            data,
            version,
        } => {
            validate(&path)?;
            let mut record = pending.get(tree, &path)?;
            acl::check(&record.acl, permission::WRITE, caller.identities)?;
            let version = check_version(record.version, version)?;
            record.version = version;
            pending.set(&path, Some(record));
            Ok(Txn::SetData {
                path,
                data,
                version,
            })
        }
        Request::SetAcl { path, acl, version } => {
            validate(&path)?;
            let resolved = acl::resolve(&acl, caller.identities, caller.line)?;
            let mut record = pending.get(tree, &path)?;
            acl::check(&record.acl, permission::ADMIN, caller.identities)?;
            let version = check_version(record.aversion, version)?;
            let acl: Arc<[Acl]> = resolved.into();
            record.aversion = version;
            record.acl = Arc::clone(&acl);
            pending.set(&path, Some(record));
            Ok(Txn::SetAcl { path, acl, version })
        }
        Request::Check { path, version } => {
            validate(&path)?;
            let record = pending.get(tree, &path)?;
            acl::check(&record.acl, permission::READ, caller.identities)?;
            check_version(record.version, version)?;
            Ok(Txn::Check)
        }
        _ => unreachable!("only writes are prepared"),
    }
}

fn prepare_create(
    tree: &Tree,
    pending: &mut Pending,
    caller: &Caller<'_>,
    create: Create,
) -> Result<Txn, ErrorCode> {
    let flags = Flags::read(create.mode)?;
    if flags.ttl {
        // As of a server that was not told to allow them, which is the default.
        return Err(ErrorCode::UNIMPLEMENTED);
    }
    if create.form == CreateForm::Ttl {
        return Err(ErrorCode::BAD_ARGUMENTS);
    }
    let mut path = create.path;
    let above = parent(&path).filter(|_| !path.contains('\0'));
    let above = above.ok_or(ErrorCode::BAD_ARGUMENTS)?.to_owned();
    let acl: Arc<[Acl]> = acl::resolve(&create.acl, caller.identities, caller.line)?.into();
    let mut parent_record = pending.get(tree, &above)?;
    acl::check(&parent_record.acl, permission::CREATE, caller.identities)?;
    if flags.sequential {
        path = format!("{path}{:010}", parent_record.cversion);
    }
    validate(&path)?;
    if pending.get(tree, &path).is_ok() {
        return Err(ErrorCode::NODE_EXISTS);
    }
    if is_session(parent_record.owner) {
        return Err(ErrorCode::NO_CHILDREN_FOR_EPHEMERALS);
    }
    let owner = match create.form {
        CreateForm::Container => CONTAINER_OWNER,
        _ if flags.ephemeral => caller.session,
        _ => 0,
    };
    let parent_cversion = parent_record.cversion.wrapping_add(1);
    parent_record.children += 1;
    parent_record.cversion = parent_cversion;
    pending.set(&above, Some(parent_record));
    let record = Record {
        acl: Arc::clone(&acl),
        version: 0,
        cversion: 0,
        aversion: 0,
        owner,
        children: 0,
    };
    pending.set(&path, Some(record));
    Ok(Txn::Create {
        opcode: match create.form {
            CreateForm::Create => opcode::CREATE,
            _ => opcode::CREATE_2,
        },
        path,
        data: create.data,
        acl,
        owner,
        parent_cversion,
    })
}

/// A step of a multi, as ZooKeeper reads it there. Up to 3.8 which create it is says its flag alone.
/// None where that says that it brings a time to live and it does not, or the other way round, and
/// from 3.9 on where it says nothing that is known.
fn as_step(request: Request, line: Line) -> Option<Request> {
    let Request::Create(create) = request else {
        return Some(request);
    };
    let flags = match (Flags::read(create.mode), line) {
        (Ok(flags), _) => flags,
        (Err(_), Line::V3_8) => Flags::default(),
        (Err(_), Line::V3_9) => return None,
    };
    let form = match create.form {
        CreateForm::Ttl => CreateForm::Ttl,
        _ if flags.container => CreateForm::Container,
        _ if line == Line::V3_8 => CreateForm::Create,
        form => form,
    };
    let is_consistent = flags.ttl == (form == CreateForm::Ttl);
    is_consistent.then_some(Request::Create(Create { form, ..create }))
}

#[derive(Clone, Copy, Default)]
struct Flags {
    ephemeral: bool,
    sequential: bool,
    container: bool,
    ttl: bool,
}

impl Flags {
    fn read(mode: CreateMode) -> Result<Self, ErrorCode> {
        let none = Self::default();
        Ok(match mode.0 {
            0 => none,
            1 => Self {
                ephemeral: true,
                ..none
            },
            2 => Self {
                sequential: true,
                ..none
            },
            3 => Self {
                ephemeral: true,
                sequential: true,
                ..none
            },
            4 => Self {
                container: true,
                ..none
            },
            5 => Self { ttl: true, ..none },
            6 => Self {
                sequential: true,
                ttl: true,
                ..none
            },
            _ => return Err(ErrorCode::BAD_ARGUMENTS),
        })
    }
}

fn validate(path: &str) -> Result<(), ErrorCode> {
    if is_valid(path) {
        Ok(())
    } else {
        Err(ErrorCode::BAD_ARGUMENTS)
    }
}

/// The next version.
fn check_version(present: i32, expected: i32) -> Result<i32, ErrorCode> {
    if expected == -1 || expected == present {
        Ok(present.wrapping_add(1))
    } else {
        Err(ErrorCode::BAD_VERSION)
    }
}

impl Txn {
    /// Does what was prepared, and says what its answer is.
    pub(crate) fn enact(self, tree: &mut Tree, moment: Moment) -> Part {
        match self {
            Self::Create {
                opcode,
                path,
                data,
                acl,
                owner,
                parent_cversion,
            } => {
                let stat = tree.create(&path, data, acl, owner, parent_cversion, moment);
                let reply = match opcode {
                    opcode::CREATE => Reply::Path(path),
                    _ => Reply::Created { path, stat },
                };
                Part::Done(opcode, reply)
            }
            Self::Delete { path } => {
                tree.delete(&path, moment);
                Part::Done(opcode::DELETE, Reply::Nothing)
            }
            Self::SetData {
                path,
                data,
                version,
            } => {
                let stat = tree.set_data(&path, data, version, moment);
                Part::Done(opcode::SET_DATA, Reply::Stat(stat))
            }
            Self::SetAcl { path, acl, version } => {
                let stat = tree.set_acl(&path, acl, version);
                Part::Done(opcode::SET_ACL, Reply::Stat(stat))
            }
            Self::Check => Part::Done(opcode::CHECK, Reply::Nothing),
        }
    }
}

impl Core {
    /// Does what was planned, tells those who watch, and says what its answer is.
    pub(super) fn carry_out(&mut self, plan: Plan, moment: Moment) -> Result<Reply, ErrorCode> {
        let parts = match plan {
            Plan::One(txn) => {
                return match self.apply(txn, moment) {
                    Part::Done(_, reply) => Ok(reply),
                    Part::Failed(code) => Err(code),
                };
            }
            Plan::All(txns) => txns
                .into_iter()
                .map(|txn| self.apply(txn, moment))
                .collect(),
            Plan::Nothing(codes) => codes.into_iter().map(Part::Failed).collect(),
        };
        Ok(Reply::Parts(parts))
    }

    /// Applies one that was prepared, and tells those who watch.
    fn apply(&mut self, txn: Txn, moment: Moment) -> Part {
        match txn {
            Txn::Create { ref path, .. } => {
                let path = path.clone();
                let part = txn.enact(&mut self.tree, moment);
                let acl = self.acl_of(&path);
                self.tell_of_data(&path, EventKind::NodeCreated, &acl);
                self.tell_of_children(&path);
                part
            }
            Txn::Delete { path } => {
                self.delete(&path, moment);
                Part::Done(opcode::DELETE, Reply::Nothing)
            }
            Txn::SetData { ref path, .. } => {
                let path = path.clone();
                let part = txn.enact(&mut self.tree, moment);
                let acl = self.acl_of(&path);
                self.tell_of_data(&path, EventKind::NodeDataChanged, &acl);
                part
            }
            txn => txn.enact(&mut self.tree, moment),
        }
    }

    /// Deletes a node, and tells those who watch.
    pub(crate) fn delete(&mut self, path: &str, moment: Moment) {
        // Who may not read a node is not told of it.
        let acl = self.acl_of(path);
        self.tree.delete(path, moment);
        let told = self.tell_of_data(path, EventKind::NodeDeleted, &acl);
        // Who has heard of it by a watch on its data is not told again.
        let more = self
            .child_watches
            .trigger(path, EventKind::NodeDeleted, &told);
        self.tell(&more, EventKind::NodeDeleted, path, &acl);
        self.tell_of_children(path);
    }

    fn tell_of_data(&mut self, path: &str, kind: EventKind, acl: &[Acl]) -> BTreeSet<ConnectionId> {
        let told = self.data_watches.trigger(path, kind, &BTreeSet::new());
        self.tell(&told, kind, path, acl);
        told
    }

    fn tell_of_children(&mut self, path: &str) {
        let above = shown(paths::parent(path).unwrap_or_default());
        let acl = self.acl_of(above);
        let kind = EventKind::NodeChildrenChanged;
        let told = self.child_watches.trigger(above, kind, &BTreeSet::new());
        self.tell(&told, kind, above, &acl);
    }

    fn acl_of(&self, path: &str) -> Arc<[Acl]> {
        let acl = self.tree.get(path).map(|node| Arc::clone(&node.acl));
        acl.unwrap_or_default()
    }
}
