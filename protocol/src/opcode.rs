//! The numbers of the requests, as ZooKeeper has them in `ZooDefs.OpCode`.

/// No request: the type of a result that is an error, and the end of a multi.
pub const ERROR: i32 = -1;
/// Never sent by clients: the handshake makes the session.
pub const CREATE_SESSION: i32 = -10;
/// Ends the session.
pub const CLOSE_SESSION: i32 = -11;
/// Creates a node, and answers its path.
pub const CREATE: i32 = 1;
/// Deletes a node.
pub const DELETE: i32 = 2;
/// Asks for a node's stat; can leave a watch on a node that is not there.
pub const EXISTS: i32 = 3;
/// Reads a node's data.
pub const GET_DATA: i32 = 4;
/// Replaces a node's data.
pub const SET_DATA: i32 = 5;
/// Reads a node's access list.
pub const GET_ACL: i32 = 6;
/// Replaces a node's access list.
pub const SET_ACL: i32 = 7;
/// Lists a node's children.
pub const GET_CHILDREN: i32 = 8;
/// Waits until the server has caught up with the leader.
pub const SYNC: i32 = 9;
/// Keeps the session alive.
pub const PING: i32 = 11;
/// Lists a node's children, and answers its stat as well.
pub const GET_CHILDREN_2: i32 = 12;
/// Compares a node's version. Only ever inside a multi: alone it can corrupt the data of 3.8.0 and
/// 3.9.0 (ZOOKEEPER-2623).
pub const CHECK: i32 = 13;
/// Several writes, all of them or none.
pub const MULTI: i32 = 14;
/// Creates a node, and answers its path and its stat.
pub const CREATE_2: i32 = 15;
/// Changes the members of the ensemble.
pub const RECONFIG: i32 = 16;
/// Asks whether there is a watch.
pub const CHECK_WATCHES: i32 = 17;
/// Takes a watch away.
pub const REMOVE_WATCHES: i32 = 18;
/// Creates a node that goes when its last child has gone.
pub const CREATE_CONTAINER: i32 = 19;
/// Sent by servers to themselves.
pub const DELETE_CONTAINER: i32 = 20;
/// Creates a node that goes when nobody has changed it for a time.
pub const CREATE_TTL: i32 = 21;
/// Several reads, each answered for itself; since 3.6. None of them leaves a watch.
pub const MULTI_READ: i32 = 22;
/// Brings credentials.
pub const AUTH: i32 = 100;
/// Brings the watches of an earlier connection.
pub const SET_WATCHES: i32 = 101;
/// A step of SASL.
pub const SASL: i32 = 102;
/// Lists the session's ephemeral nodes.
pub const GET_EPHEMERALS: i32 = 103;
/// Counts the nodes below a node.
pub const GET_ALL_CHILDREN_NUMBER: i32 = 104;
/// Brings the watches of an earlier connection, persistent ones as well.
pub const SET_WATCHES_2: i32 = 105;
/// Leaves a persistent watch.
pub const ADD_WATCH: i32 = 106;
/// Asks as whom the server knows this connection.
pub const WHO_AM_I: i32 = 107;

/// Whether a request with this number is committed by a quorum when it is done.
#[must_use]
pub fn is_write(number: i32) -> bool {
    matches!(
        number,
        CREATE
            | CREATE_2
            | CREATE_CONTAINER
            | CREATE_TTL
            | DELETE
            | SET_DATA
            | SET_ACL
            | MULTI
            | RECONFIG
    )
}
