//! The price of an honest lock on an idle path, paid through the `zookeeper` crate: create a node, list
//! the folder and find oneself first, delete the node. On a connection of the crate's own, or through a
//! handle of it on somebody else's session; examples/by_the_crate.rs has the whole lock.

use std::sync::Arc;
use std::time::Duration;

use zookeeper::{Acl, CreateMode, WatchedEvent, ZkError, ZooKeeper};

const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

/// A handle of the crate and a folder of its own.
pub struct Plain {
    zookeeper: Arc<ZooKeeper>,
    folder: String,
    /// The connection is the crate's own.
    is_own: bool,
}

impl Plain {
    pub fn connect(servers: &str, folder: &str) -> Plain {
        let zookeeper = ZooKeeper::connect(servers, SESSION_TIMEOUT, |_: WatchedEvent| {})
            .expect("the server serves");
        Plain::through(Arc::new(zookeeper), folder, true)
    }

    /// By this handle, whose session is somebody else's.
    pub fn by(handle: &Arc<ZooKeeper>, folder: &str) -> Plain {
        Plain::through(Arc::clone(handle), folder, false)
    }

    fn through(zookeeper: Arc<ZooKeeper>, folder: &str, is_own: bool) -> Plain {
        let plain = Plain {
            zookeeper,
            folder: folder.to_owned(),
            is_own,
        };
        let acl = Acl::open_unsafe().clone();
        let made = plain
            .zookeeper
            .create(folder, Vec::new(), acl, CreateMode::Persistent);
        assert!(
            matches!(made, Ok(_) | Err(ZkError::NodeExists)),
            "{folder} cannot be made: {made:?}"
        );
        plain
    }

    pub fn cycle(&self) {
        let prefix = format!("{}/lock-", self.folder);
        let acl = Acl::open_unsafe().clone();
        let node = self
            .zookeeper
            .create(&prefix, Vec::new(), acl, CreateMode::EphemeralSequential)
            .expect("the server creates");
        let children = self.zookeeper.get_children(&self.folder, false);
        // With names of one length, the first number is the first name.
        let children = children.expect("the server lists");
        let first = children.iter().min().expect("ours");
        assert!(node.ends_with(first.as_str()), "nobody else is about");
        self.zookeeper
            .delete(&node, None)
            .expect("the server deletes");
    }

    /// How many children the folder at `path` has; none if there is no folder.
    pub fn count(&self, path: &str) -> usize {
        match self.zookeeper.get_children(path, false) {
            Ok(children) => children.len(),
            Err(ZkError::NoNode) => 0,
            Err(error) => panic!("{path} cannot be listed: {error}"),
        }
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        if self.is_own {
            // The server ends the session in any case, a little later.
            let _ = self.zookeeper.close();
        }
    }
}
