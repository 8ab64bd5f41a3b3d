//! What our nodes hold for others to read.

use std::sync::Arc;
use std::time::SystemTime;

use crate::error::{Error, Result};
use crate::tenure::REVOKE;
use crate::znode::identity::Identity;
use crate::znode::path::LockPath;

/// The server's default limit for a whole request (`jute.maxbuffer`).
const MAX_REQUEST_BYTES: usize = 0xf_ffff;
/// Left of it for all that is not path or data: headers, lengths, a long access list.
const REQUEST_OVERHEAD_BYTES: usize = 4096;

/// The data that a lock writes: its own, or who we are.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeData(Option<Arc<[u8]>>);

impl NodeData {
    /// Checks data for a node in `folder`.
    pub(crate) fn checked(folder: &LockPath, data: Option<Vec<u8>>) -> Result<Self> {
        if let Some(data) = &data {
            if data.starts_with(REVOKE) {
                let asks = String::from_utf8_lossy(REVOKE);
                return Err(Error::invalid(format!(
                    "{folder}: node data that begins with {asks:?} asks its own holder to give \
                     the lock back"
                )));
            }
            let most = MAX_REQUEST_BYTES - REQUEST_OVERHEAD_BYTES - folder.as_str().len();
            if data.len() > most {
                let size = data.len();
                return Err(Error::invalid(format!(
                    "{folder}: node data of {size} bytes; ZooKeeper takes at most {most}"
                )));
            }
        }
        Ok(Self(data.map(Arc::from)))
    }

    /// What to write now.
    pub(crate) fn now(&self) -> Arc<[u8]> {
        match &self.0 {
            Some(data) => Arc::clone(data),
            None => {
                let identity = Identity::current(SystemTime::now());
                Arc::from(identity.to_string().into_bytes())
            }
        }
    }

    /// What to write for one acquire, which may have brought its own.
    pub(crate) fn or(&self, folder: &LockPath, own: Option<Vec<u8>>) -> Result<Self> {
        match own {
            Some(_) => Self::checked(folder, own),
            None => Ok(self.clone()),
        }
    }
}
