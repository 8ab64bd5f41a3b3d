//! Several servers with a leader: the verbs, and beside an ensemble of Apache ZooKeeper.

mod beside_apache;
mod verbs;
