//! The price of an honest lock on an idle path, paid through the `zookeeper` crate alone: create
//! a node, list the folder, delete the node.

use std::time::Duration;

use zookeeper::{Acl, CreateMode, WatchedEvent, ZkError, ZooKeeper};

const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection of the crate's own and a folder of its own.
pub struct Plain {
    zookeeper: ZooKeeper,
    folder: String,
}

impl Plain {
    pub fn connect(servers: &str, folder: &str) -> Plain {
        let zookeeper = ZooKeeper::connect(servers, SESSION_TIMEOUT, |_: WatchedEvent| {})
            .expect("the server serves");
        let plain = Plain {
            zookeeper,
            folder: folder.to_owned(),
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
        assert!(!children.expect("the server lists").is_empty());
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
        // The server ends the session in any case, a little later.
        let _ = self.zookeeper.close();
    }
}
