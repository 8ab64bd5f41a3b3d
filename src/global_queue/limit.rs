//! How many permits there are: as the program says, or as a node says.

use std::sync::Arc;

use super::count;
use super::folder::make_node;
use crate::error::Error;
use crate::session::backend::{Refusal, WatchKind};
use crate::session::{CallError, Contact, Step, Watch, found};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::znode::path::LockPath;

/// How many permits may be held at once.
pub(crate) enum Limit {
    /// As the program says, if all who share the semaphore say the same.
    Fixed {
        max: u32,
        /// The node whose data says the maximum, in decimal digits, as kazoo's does.
        home: LockPath,
        agreed: AtomicBool,
    },
    /// As a node says.
    Shared {
        count: LockPath,
        initial: i32,
        /// What it said, and the watch that tells when it says something else.
        known: Mutex<Option<(u32, Arc<Watch>)>>,
    },
}

impl Limit {
    pub(crate) fn fixed(max: u32, home: LockPath) -> Self {
        Self::Fixed {
            max,
            home,
            agreed: AtomicBool::new(false),
        }
    }

    pub(crate) fn shared(count: LockPath, initial: i32) -> Self {
        Self::Shared {
            count,
            initial,
            known: Mutex::new(None),
        }
    }

    /// The limit that stands now, and what tells when another does.
    pub(super) fn watch(&self, contact: &Contact<'_>) -> Step<(u32, Option<Arc<Watch>>)> {
        let Self::Shared {
            count,
            initial,
            known,
        } = self
        else {
            return Ok((self.ask(contact)?, None));
        };
        if let Some((max, watch)) = &*known.lock()
            && watch.is_live()
        {
            return Ok((*max, Some(Arc::clone(watch))));
        }
        let watch = Watch::new(contact, count.as_str(), WatchKind::Data, None);
        let watch = Arc::new(watch);
        let value = count::read(contact, count, *initial, Some(&watch))?;
        let max = u32::try_from(value.number).unwrap_or(0);
        let before = known.lock().replace((max, Arc::clone(&watch)));
        drop(before);
        Ok((max, Some(watch)))
    }

    /// The limit that stands now. Takes nothing from those who wait for another.
    pub(super) fn ask(&self, contact: &Contact<'_>) -> Step<u32> {
        match self {
            Self::Fixed { max, home, agreed } => {
                if !agreed.load(Ordering::Relaxed) {
                    agree(contact, *max, home)?;
                    agreed.store(true, Ordering::Relaxed);
                }
                Ok(*max)
            }
            Self::Shared { count, initial, .. } => {
                let value = count::read(contact, count, *initial, None)?;
                Ok(u32::try_from(value.number).unwrap_or(0))
            }
        }
    }

    /// The folder of the permits was made anew: others may have agreed on something else.
    pub(super) fn forget(&self) {
        if let Self::Fixed { agreed, .. } = self {
            agreed.store(false, Ordering::Relaxed);
        }
    }
}

/// Makes sure that `home` says the same maximum as we, or nothing about it.
fn agree(contact: &Contact<'_>, max: u32, home: &LockPath) -> Step<()> {
    let said: Arc<[u8]> = Arc::from(max.to_string().into_bytes());
    loop {
        let Some((data, stat)) = found(contact.data(home.as_str()))? else {
            make_node(contact, home.as_str(), &said)?;
            continue;
        };
        let theirs = std::str::from_utf8(&data).ok().map(str::parse::<u32>);
        match theirs {
            Some(Ok(theirs)) if theirs == max => return Ok(()),
            Some(Ok(theirs)) => {
                return Err(CallError::Left(Error::invalid(format!(
                    "{home}: this semaphore was built for at most {max}, and others use it with \
                     at most {theirs}; all must agree, or share a count"
                ))));
            }
            // Curator leaves it empty.
            _ if data.is_empty() => {
                match contact.set(home.as_str(), &said, Some(stat.version)) {
                    // The next look sees what it says now.
                    Ok(_) | Err(CallError::Refused(Refusal::BadVersion | Refusal::NoNode)) => {}
                    // We may use the semaphore and not write there; then nobody is told.
                    Err(CallError::Refused(Refusal::NoAuth)) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            // Somebody's own data is not about the maximum.
            _ => return Ok(()),
        }
    }
}
