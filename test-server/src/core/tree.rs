//! The nodes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use zklock_protocol::{Acl, Stat, permission};

use super::paths::{CONFIG, QUOTA, SYSTEM, shown};

/// In no useful order, as servers list them, but in the same order in each run.
pub(crate) type Names = HashSet<String, BuildHasherDefault<DefaultHasher>>;

/// What stands for a session as the owner of a container.
pub(crate) const CONTAINER_OWNER: i64 = i64::MIN;

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) acl: Arc<[Acl]>,
    /// Without what can be counted.
    stat: Stat,
    pub(crate) children: Names,
}

impl Node {
    fn new(data: Option<Vec<u8>>, acl: Arc<[Acl]>, stat: Stat) -> Self {
        Self {
            data,
            acl,
            stat,
            children: Names::default(),
        }
    }

    /// As clients are told: creates and deletes of children are counted, and of owners only
    /// sessions are shown.
    pub(crate) fn stat(&self) -> Stat {
        let count = |length: usize| i32::try_from(length).unwrap_or(i32::MAX);
        let num_children = count(self.children.len());
        let created = self.stat.cversion;
        Stat {
            data_length: count(self.data.as_ref().map_or(0, Vec::len)),
            num_children,
            cversion: created.wrapping_mul(2).wrapping_sub(num_children),
            ephemeral_owner: match self.stat.ephemeral_owner {
                CONTAINER_OWNER => 0,
                owner => owner,
            },
            ..self.stat
        }
    }

    /// As it is kept: only creates of children are counted.
    pub(crate) fn kept(&self) -> &Stat {
        &self.stat
    }

    pub(crate) fn is_container(&self) -> bool {
        self.stat.ephemeral_owner == CONTAINER_OWNER
    }
}

/// Whether an owner is a session.
pub(crate) fn is_session(owner: i64) -> bool {
    owner != 0 && owner != CONTAINER_OWNER
}

/// One change, as the log of a server would have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) zxid: i64,
    /// In ms since 1970.
    pub(crate) time_ms: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    nodes: HashMap<String, Node>,
    ephemerals: HashMap<i64, Names>,
    containers: BTreeSet<String>,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let mut nodes = HashMap::new();
        let open: Arc<[Acl]> = Arc::new([Acl::open()]);
        let readable = Arc::new([Acl {
            permissions: permission::READ,
            ..Acl::open()
        }]);
        let empty = || Some(Vec::new());
        let node = |acl: &Arc<[Acl]>| Node::new(empty(), Arc::clone(acl), Stat::default());
        let mut root = node(&open);
        root.children.insert("zookeeper".to_owned());
        let mut system = node(&open);
        system
            .children
            .extend(["quota".to_owned(), "config".to_owned()]);
        nodes.insert("/".to_owned(), root);
        nodes.insert(SYSTEM.to_owned(), system);
        nodes.insert(QUOTA.to_owned(), node(&open));
        let mut config = Node::new(empty(), readable, Stat::default());
        config.stat.aversion = -1;
        nodes.insert(CONFIG.to_owned(), config);
        Self {
            nodes,
            ephemerals: HashMap::new(),
            containers: BTreeSet::new(),
        }
    }

    /// The root has a second spelling: nothing at all.
    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(shown(path))
    }

    fn get_mut(&mut self, path: &str) -> Option<&mut Node> {
        self.nodes.get_mut(shown(path))
    }

    /// Adds a node to a parent that is there and has no such child. `parent_cversion` is the
    /// parent's number of created children with this one.
    pub(crate) fn create(
        &mut self,
        path: &str,
        data: Option<Vec<u8>>,
        acl: Arc<[Acl]>,
        owner: i64,
        parent_cversion: i32,
        moment: Moment,
    ) -> Stat {
        let (parent, name) = path.rsplit_once('/').expect("prepared: it has a parent");
        let above = self.get_mut(parent).expect("prepared: the parent is there");
        // It stays where it is when it would overflow.
        if parent_cversion > above.stat.cversion {
            above.stat.cversion = parent_cversion;
            above.stat.pzxid = moment.zxid;
        }
        above.children.insert(name.to_owned());
        let stat = Stat {
            czxid: moment.zxid,
            mzxid: moment.zxid,
            pzxid: moment.zxid,
            ctime: moment.time_ms,
            mtime: moment.time_ms,
            ephemeral_owner: owner,
            ..Stat::default()
        };
        let node = Node::new(data, acl, stat);
        let stat = node.stat();
        self.nodes.insert(path.to_owned(), node);
        if owner == CONTAINER_OWNER {
            self.containers.insert(path.to_owned());
        } else if owner != 0 {
            let owned = self.ephemerals.entry(owner).or_default();
            owned.insert(path.to_owned());
        }
        stat
    }

    /// Removes a node that is there and has no children.
    pub(crate) fn delete(&mut self, path: &str, moment: Moment) {
        let node = self.nodes.remove(path).expect("prepared: it is there");
        let (parent, name) = path.rsplit_once('/').expect("prepared: it has a parent");
        if let Some(parent) = self.get_mut(parent) {
            parent.children.remove(name);
            parent.stat.pzxid = parent.stat.pzxid.max(moment.zxid);
        }
        let owner = node.stat.ephemeral_owner;
        if owner == CONTAINER_OWNER {
            self.containers.remove(path);
        } else if let Some(owned) = self.ephemerals.get_mut(&owner) {
            owned.remove(path);
            if owned.is_empty() {
                self.ephemerals.remove(&owner);
            }
        }
    }

    pub(crate) fn set_data(
        &mut self,
        path: &str,
        data: Option<Vec<u8>>,
        version: i32,
        moment: Moment,
    ) -> Stat {
        let node = self.get_mut(path).expect("prepared: it is there");
        node.data = data;
        node.stat.version = version;
        node.stat.mzxid = moment.zxid;
        node.stat.mtime = moment.time_ms;
        node.stat()
    }

    pub(crate) fn set_acl(&mut self, path: &str, acl: Arc<[Acl]>, version: i32) -> Stat {
        let node = self.get_mut(path).expect("prepared: it is there");
        node.acl = acl;
        node.stat.aversion = version;
        node.stat()
    }

    /// The nodes of a session, in no useful order.
    pub(crate) fn ephemerals_of(&self, session: i64) -> Vec<String> {
        let owned = self.ephemerals.get(&session);
        owned.into_iter().flatten().cloned().collect()
    }

    pub(crate) fn ephemerals(&self) -> &HashMap<i64, Names> {
        &self.ephemerals
    }

    pub(crate) fn has_containers(&self) -> bool {
        !self.containers.is_empty()
    }

    /// Containers that were used and are empty.
    pub(crate) fn used_up_containers(&self) -> Vec<String> {
        let used_up = |path: &&String| {
            let node = self.get(path);
            node.is_some_and(|node| node.children.is_empty() && node.stat.cversion > 0)
        };
        self.containers.iter().filter(used_up).cloned().collect()
    }

    /// How many nodes there are, as servers count: the root twice.
    pub(crate) fn count(&self) -> usize {
        self.nodes.len() + 1
    }

    /// How many nodes are below this one.
    pub(crate) fn count_below(&self, path: &str) -> usize {
        if path == "/" {
            return self.nodes.len() - 1;
        }
        let prefix = format!("{path}/");
        // The root's second spelling begins with nothing.
        self.nodes
            .keys()
            .filter(|path| path.starts_with(&prefix))
            .count()
    }

    pub(crate) fn bytes(&self) -> usize {
        let size =
            |(path, node): (&String, &Node)| path.len() + node.data.as_ref().map_or(0, Vec::len);
        self.nodes.iter().map(size).sum()
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &String> {
        self.nodes.keys()
    }
}
