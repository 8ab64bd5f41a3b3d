//! How many permits there are: a number of the program, or the number in a node.

use std::sync::Arc;

use zklock_protocol::WatchKind;

use super::count;
use super::folder::make_node;
use crate::error::{Error, Result};
use crate::session::{CallError, Contact, Refusal, Session, Step, Waiter, Watch, found};
use crate::sync::Mutex;
use crate::wait::limits::WaitLimits;
use crate::znode::path::LockPath;

/// How many permits may be held at once.
///
/// Either way a node holds it, and whoever counts permits keeps a watch on that node: a maximum
/// that was agreed on once can be another one the next time.
pub(crate) struct Limit {
    kind: LimitKind,
    /// The node's last word, and the watch that tells of the next one.
    known: Mutex<Option<(Said, Arc<Watch>)>>,
}

enum LimitKind {
    /// The program's own, if all programs that share the semaphore have the same.
    Fixed {
        /// What the program said last, and what it said before. Both count while its change is on
        /// its way to `home`, and when two of its threads change it at once.
        ours: Mutex<(u32, Option<u32>)>,
        /// The node whose data says the maximum, in decimal digits, as kazoo's does. Where it may
        /// be replaced there is a sign in front of them, so that it is not taken for a number that
        /// somebody else keeps there.
        home: LockPath,
        /// Whether ours may replace another one that nobody goes by any more. Not where others look
        /// at `home` only once.
        adopts: bool,
    },
    /// As a node says.
    Shared { count: LockPath, initial: i32 },
}

/// The node's word on the maximum.
#[derive(Clone, Copy)]
pub(super) enum Said {
    /// A maximum to go by.
    Agreed(u32),
    /// Another one than ours, in a version of the data.
    Other {
        theirs: u32,
        version: i32,
        /// Ours may take its place when nobody goes by it any more.
        may_go: bool,
    },
}

impl Limit {
    pub(crate) fn fixed(max: u32, home: LockPath, adopts: bool) -> Self {
        Self::of(LimitKind::Fixed {
            ours: Mutex::new((max, None)),
            home,
            adopts,
        })
    }

    pub(crate) fn shared(count: LockPath, initial: i32) -> Self {
        Self::of(LimitKind::Shared { count, initial })
    }

    fn of(kind: LimitKind) -> Self {
        Self {
            kind,
            known: Mutex::new(None),
        }
    }

    /// The node's word now, and the watch that tells of the next one.
    pub(super) fn watch(&self, contact: &Contact<'_>) -> Step<(Said, Arc<Watch>)> {
        // One that lives stays: another thread may sleep on it.
        if let Some((said, watch)) = &*self.known.lock()
            && watch.is_live()
        {
            return Ok((*said, Arc::clone(watch)));
        }
        let watch = Arc::new(Watch::new(
            contact,
            self.node().as_str(),
            WatchKind::DATA,
            None,
        ));
        let said = self.read(contact, Some(&watch))?;
        let before = self.known.lock().replace((said, Arc::clone(&watch)));
        drop(before);
        Ok((said, watch))
    }

    /// The node's word now. Takes nothing from those who wait for it to say something else.
    pub(super) fn ask(&self, contact: &Contact<'_>) -> Step<Said> {
        self.read(contact, None)
    }

    /// The folder of the permits was made again: others may have agreed on something else, and the
    /// watch may not have told yet.
    pub(super) fn forget(&self) {
        let before = self.known.lock().take();
        drop(before);
    }

    /// Writes our maximum in the place of the other one, which nobody goes by any more. Only by the
    /// right of the lock in front; the caller must look again afterwards.
    pub(super) fn adopt(&self, contact: &Contact<'_>, version: i32) -> Step<()> {
        let LimitKind::Fixed { ours, home, .. } = &self.kind else {
            return Ok(());
        };
        self.forget();
        let max = ours.lock().0;
        match contact.set(home.as_str(), &self.said(max), Some(version)) {
            Ok(_) | Err(CallError::Refused(Refusal::BadVersion | Refusal::NoNode)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The data of `home` for this maximum.
    fn said(&self, max: u32) -> Arc<[u8]> {
        let adopts = matches!(self.kind, LimitKind::Fixed { adopts: true, .. });
        let sign = if adopts { "+" } else { "" };
        Arc::from(format!("{sign}{max}").into_bytes())
    }

    /// The program's maximum, for a limit of its own.
    pub(super) fn ours(&self) -> Option<u32> {
        match &self.kind {
            LimitKind::Fixed { ours, .. } => Some(ours.lock().0),
            LimitKind::Shared { .. } => None,
        }
    }

    /// Whether it is one, and was never said to be another.
    pub(super) fn is_always_one(&self) -> bool {
        match &self.kind {
            LimitKind::Fixed { ours, .. } => *ours.lock() == (1, None),
            LimitKind::Shared { .. } => false,
        }
    }

    /// Two who go by different maxima cannot both be right.
    pub(super) fn disagree<T>(&self, theirs: u32) -> Step<T> {
        let (home, ours) = (self.node(), self.ours().unwrap_or_default());
        Err(CallError::Left(Error::invalid(format!(
            "{home}: this semaphore was built for at most {ours}, and others use it with at most \
             {theirs}; all must agree, or share a count"
        ))))
    }

    /// Changes what the node says, and with it what this program says.
    pub(crate) fn change(&self, session: &Arc<Session>, max: u32) -> Result<()> {
        session.refuse_child()?;
        let data = match &self.kind {
            LimitKind::Fixed { home, .. } if max == 0 => {
                return Err(Error::invalid(format!("{home}: a maximum of 0 permits")));
            }
            LimitKind::Fixed { ours, home, .. } => {
                let before = {
                    let mut ours = ours.lock();
                    let before = *ours;
                    if ours.0 != max {
                        *ours = (max, Some(ours.0));
                    }
                    before
                };
                let said = self.said(max);
                let changed = Waiter::new(session, &WaitLimits::none())
                    .retry(home.as_str(), |contact| {
                        put_home(contact, home, &said).map(Some)
                    });
                if changed.as_ref().is_err_and(Error::is_invalid) {
                    // Nothing was changed, and nothing will be.
                    *ours.lock() = before;
                }
                return changed;
            }
            LimitKind::Shared { count, .. } => match i32::try_from(max) {
                Ok(number) => Arc::from(number.to_be_bytes()),
                Err(_) => {
                    let why = format!("{count}: {max} is more than a shared count can say");
                    return Err(Error::invalid(why));
                }
            },
        };
        let limits = WaitLimits::none();
        let node = self.node().as_str();
        Waiter::new(session, &limits).retry(node, |contact| {
            count::put(contact, self.node(), &data)?;
            Ok(Some(()))
        })
    }

    /// The node that says it.
    fn node(&self) -> &LockPath {
        match &self.kind {
            LimitKind::Fixed { home, .. } => home,
            LimitKind::Shared { count, .. } => count,
        }
    }

    fn read(&self, contact: &Contact<'_>, watch: Option<&Watch>) -> Step<Said> {
        match &self.kind {
            LimitKind::Fixed { ours, home, adopts } => {
                let accepted = *ours.lock();
                let said = self.said(accepted.0);
                let said = read_home(contact, accepted, &said, home, watch)?;
                Ok(match said {
                    Said::Other {
                        theirs,
                        version,
                        may_go,
                    } => Said::Other {
                        theirs,
                        version,
                        may_go: may_go && *adopts,
                    },
                    agreed @ Said::Agreed(_) => agreed,
                })
            }
            LimitKind::Shared { count, initial } => {
                let value = count::read(contact, count, *initial, watch)?;
                Ok(Said::Agreed(u32::try_from(value.number).unwrap_or(0)))
            }
        }
    }
}

/// Has `home` say this maximum, whatever other one it says. What is none is somebody's own data.
fn put_home(contact: &Contact<'_>, home: &LockPath, said: &Arc<[u8]>) -> Step<()> {
    loop {
        let Some((data, stat)) = found(contact.data(home.as_str()))? else {
            make_node(contact, home.as_str(), said)?;
            continue;
        };
        if *data == **said {
            return Ok(());
        }
        if !data.is_empty() && number(&data).is_none() {
            return Err(CallError::Left(Error::invalid(format!(
                "{home}: it holds data that is no maximum, and is left as it is"
            ))));
        }
        match contact.set(home.as_str(), said, Some(stat.version)) {
            Ok(_) => return Ok(()),
            Err(CallError::Refused(Refusal::BadVersion | Refusal::NoNode)) => {}
            Err(error) => return Err(error),
        }
    }
}

fn number(data: &[u8]) -> Option<u32> {
    std::str::from_utf8(data).ok()?.parse().ok()
}

/// The word of `home`, once it has one.
fn read_home(
    contact: &Contact<'_>,
    (max, before): (u32, Option<u32>),
    said: &Arc<[u8]>,
    home: &LockPath,
    watch: Option<&Watch>,
) -> Step<Said> {
    loop {
        let read = match watch {
            Some(watch) => contact.watch_data(watch),
            None => contact.data(home.as_str()),
        };
        // Who only looks writes nothing.
        let only_looks = watch.is_none();
        let Some((data, stat)) = found(read)? else {
            if only_looks {
                return Ok(Said::Agreed(max));
            }
            make_node(contact, home.as_str(), said)?;
            continue;
        };
        match number(&data) {
            Some(theirs) if theirs == max || before == Some(theirs) => {
                return Ok(Said::Agreed(theirs));
            }
            Some(theirs) => {
                return Ok(Said::Other {
                    theirs,
                    version: stat.version,
                    may_go: data.starts_with(b"+"),
                });
            }
            // Curator leaves it empty.
            None if data.is_empty() && !only_looks => {
                match contact.set(home.as_str(), said, Some(stat.version)) {
                    // The next look sees what it says now.
                    Ok(_) | Err(CallError::Refused(Refusal::BadVersion | Refusal::NoNode)) => {}
                    // We may use the semaphore and not write there; then nobody is told.
                    Err(CallError::Refused(Refusal::NoAuth)) => return Ok(Said::Agreed(max)),
                    Err(error) => return Err(error),
                }
            }
            // Somebody's own data is not about the maximum.
            None => return Ok(Said::Agreed(max)),
        }
    }
}
