//! A number in a node: four bytes, big-endian, as Curator's shared count has it.

use std::sync::Arc;

use super::enter::make_node;
use crate::error::Error;
use crate::session::keeper::{KeeperError, Reply, Request};
use crate::session::{CallError, Contact, Step};
use crate::znode::path::LockPath;

/// What the node says, and since which change.
pub(crate) struct Value {
    pub(crate) number: i32,
    pub(crate) version: i32,
}

/// Reads the count, and makes it if it is missing. With `watch`, a watch is left on its data.
pub(crate) fn read(
    path: &LockPath,
    initial: i32,
    watch: bool,
    mut call: impl FnMut(Request) -> Step<(Reply, Contact)>,
) -> Step<(Value, Contact)> {
    loop {
        let request = Request::Data {
            path: path.as_str().to_owned(),
            watch,
        };
        match call(request) {
            Ok((Reply::Data(data, stat), contact)) => {
                let Ok(bytes) = data.as_slice().try_into() else {
                    let bytes = data.len();
                    return Err(CallError::Left(Error::invalid(format!(
                        "{path}: {bytes} bytes, where the 4 of a shared count were expected"
                    ))));
                };
                let value = Value {
                    number: i32::from_be_bytes(bytes),
                    version: stat.version,
                };
                return Ok((value, contact));
            }
            Ok(_) => unreachable!("data is answered with data"),
            Err(CallError::Refused(KeeperError::NoNode)) => {
                make_node(path.as_str(), &Arc::from(initial.to_be_bytes()), &mut call)?;
            }
            Err(error) => return Err(error),
        }
    }
}
