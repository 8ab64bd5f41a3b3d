//! ZooKeeper itself. That the servers refuse what was on its way when the lock was lost is seen in the library's own
//! tests, which hold requests up.

use crate::stores::Place;
use crate::story;

fn node(node: &str) -> Place {
    Place::Zookeeper {
        servers: story::servers(),
        node: node.to_owned(),
    }
}

#[test]
fn late_writes_are_refused() {
    story::late_writes_are_refused("/locks/zookeeper", &node("/documents/guarded"));
}

#[test]
fn without_the_guard_a_late_write_wins() {
    story::without_the_guard_a_late_write_wins("/locks/no-zookeeper", &node("/documents/open"));
}
