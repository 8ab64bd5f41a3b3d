//! A number in a node: four bytes, big-endian, as in Curator's shared count.

use std::sync::Arc;

use super::folder::make_node;
use crate::error::Error;
use crate::session::{CallError, Contact, Refusal, Step, Watch, found};
use crate::znode::path::LockPath;

/// The node's number, and the version of its data that says so.
pub(crate) struct Value {
    pub(crate) number: i32,
    pub(crate) version: i32,
}

/// Reads the count, and makes it if it is missing. A watch is left on its data.
pub(crate) fn read(
    contact: &Contact<'_>,
    path: &LockPath,
    initial: i32,
    watch: Option<&Watch>,
) -> Step<Value> {
    loop {
        let read = match watch {
            Some(watch) => contact.watch_data(watch),
            None => contact.data(path.as_str()),
        };
        let Some((data, stat)) = found(read)? else {
            make_node(contact, path.as_str(), &Arc::from(initial.to_be_bytes()))?;
            continue;
        };
        let Ok(bytes) = data.as_slice().try_into() else {
            let bytes = data.len();
            return Err(CallError::Left(Error::invalid(format!(
                "{path}: {bytes} bytes, where the 4 of a shared count were expected"
            ))));
        };
        return Ok(Value {
            number: i32::from_be_bytes(bytes),
            version: stat.version,
        });
    }
}

/// Replaces what a node says, whatever it was; makes the node if it is missing.
pub(crate) fn put(contact: &Contact<'_>, path: &LockPath, data: &Arc<[u8]>) -> Step<()> {
    loop {
        match contact.set(path.as_str(), data, None) {
            Ok(_) => return Ok(()),
            // Somebody else may have made it first, with another number.
            Err(CallError::Refused(Refusal::NoNode)) => make_node(contact, path.as_str(), data)?,
            Err(error) => return Err(error),
        }
    }
}
