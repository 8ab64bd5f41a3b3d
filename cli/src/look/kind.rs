//! What kind of lock a path is used for, by the names of the nodes in it.

use zklock::{
    Client, Dialect, Election, LockName, Mutex, Participant, RwLock, Semaphore, SimpleMutex,
};

/// The digits that the server puts at the end of a sequential node's name.
const DIGITS: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Mutex,
    ReadersAndWriters,
    Semaphore,
    /// In kazoo's dialect it is a mutex, by its names, too.
    Election,
    /// One plain node, at the path itself.
    Simple,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::ReadersAndWriters => "read-write lock",
            Self::Semaphore => "semaphore",
            Self::Election => "leader election",
            Self::Simple => "simple mutex",
        }
    }

    /// What the path is used for now; mostly one thing, or nothing.
    pub(crate) fn all_at(
        client: &Client,
        path: &str,
        dialect: Dialect,
    ) -> zklock::Result<Vec<Self>> {
        let Some(children) = client.children(path)? else {
            return Ok(Vec::new());
        };
        let mut kinds: Vec<_> = children
            .iter()
            .filter_map(|name| Self::of_child(name, dialect))
            .collect();
        kinds.sort_unstable();
        kinds.dedup();
        // kazoo's writers look like holders of a mutex.
        if dialect == Dialect::Kazoo && kinds.contains(&Self::ReadersAndWriters) {
            kinds.retain(|kind| *kind != Self::Mutex);
        }
        if children.is_empty()
            && client
                .node(path)?
                .is_some_and(|node| node.session_id().is_some())
        {
            kinds.push(Self::Simple);
        }
        Ok(kinds)
    }

    /// What a child of this name says about its folder.
    pub(crate) fn of_child(name: &str, dialect: Dialect) -> Option<Self> {
        // Not `locks`, which stands beside it: many folders are named so.
        if dialect == Dialect::Curator && name == "leases" {
            return Some(Self::Semaphore);
        }
        if dialect == Dialect::Kazoo && is_guid(name, &[32]) {
            return Some(Self::Semaphore);
        }
        let (front, digits) = name.split_at_checked(name.len().checked_sub(DIGITS)?)?;
        if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let labels = match dialect {
            Dialect::Kazoo => [
                ("__rlock__", Self::ReadersAndWriters),
                ("__lock__", Self::Mutex),
                ("__lock__", Self::Mutex),
                ("__lock__", Self::Mutex),
            ],
            _ => [
                ("__READ__", Self::ReadersAndWriters),
                ("__WRIT__", Self::ReadersAndWriters),
                ("lock-", Self::Mutex),
                ("latch-", Self::Election),
            ],
        };
        let (guid, kind) = labels
            .iter()
            .find_map(|(label, kind)| Some((front.strip_suffix(label)?, *kind)))?;
        let is_contender = match dialect {
            Dialect::Kazoo => is_guid(guid, &[32]),
            _ if guid.is_empty() => true,
            _ => match guid.strip_prefix("_c_") {
                Some(guid) => is_guid(guid.strip_suffix('-').unwrap_or_default(), &[32, 36]),
                None => is_guid(guid.strip_suffix('-').unwrap_or(guid), &[32]),
            },
        };
        is_contender.then_some(kind)
    }
}

/// One who holds or waits.
pub(crate) struct Seen {
    pub(crate) participant: Participant,
    pub(crate) holds: bool,
}

/// A lock of one kind, to look at and to interfere with.
pub(crate) struct Lock<'a> {
    pub(crate) client: &'a Client,
    pub(crate) path: &'a str,
    pub(crate) dialect: Dialect,
    pub(crate) kind: Kind,
}

impl<'a> Lock<'a> {
    /// The locks at a path; mostly one, or none.
    pub(crate) fn all_at(
        client: &'a Client,
        path: &'a str,
        dialect: Dialect,
    ) -> zklock::Result<Vec<Self>> {
        let kinds = Kind::all_at(client, path, dialect)?;
        let lock = |kind| Self {
            client,
            path,
            dialect,
            kind,
        };
        Ok(kinds.into_iter().map(lock).collect())
    }

    /// Who holds and who waits, in order.
    pub(crate) fn queue(&self) -> zklock::Result<Vec<Seen>> {
        let queue = match self.kind {
            Kind::Mutex => self.mutex(self.path)?.participants(),
            Kind::ReadersAndWriters => self.readers_and_writers()?.participants(),
            Kind::Semaphore => return self.permits(),
            Kind::Election => self.election()?.participants(),
            Kind::Simple => SimpleMutex::new(self.client, self.path)?.participants(),
        };
        let seen = |participant: Participant| Seen {
            holds: participant.is_holder(),
            participant,
        };
        Ok(queue?.into_iter().map(seen).collect())
    }

    /// Asks a participant for the lock. `None` if nobody can be asked for this kind.
    pub(crate) fn revoke(&self, participant: &Participant) -> zklock::Result<Option<bool>> {
        match self.kind {
            Kind::Mutex => self.mutex(self.path)?.revoke(participant),
            Kind::ReadersAndWriters => self.readers_and_writers()?.revoke(participant),
            Kind::Simple => SimpleMutex::new(self.client, self.path)?.revoke(participant),
            Kind::Semaphore => return Ok(None),
            Kind::Election => self.election()?.revoke(participant),
        }
        .map(Some)
    }

    /// Deletes a participant's node; returns whether it still stood.
    pub(crate) fn break_lock(&self, participant: &Participant) -> zklock::Result<bool> {
        match self.kind {
            Kind::Mutex => self.mutex(self.path)?.break_lock(participant),
            Kind::ReadersAndWriters => self.readers_and_writers()?.break_lock(participant),
            Kind::Simple => SimpleMutex::new(self.client, self.path)?.break_lock(participant),
            Kind::Election => self.election()?.break_lock(participant),
            Kind::Semaphore if self.dialect == Dialect::Kazoo => {
                self.semaphore()?.break_lock(participant)
            }
            Kind::Semaphore if participant.path().starts_with(&self.leases_path()) => {
                self.leases()?.break_lock(participant)
            }
            Kind::Semaphore => self.mutex(&self.front_path())?.break_lock(participant),
        }
    }

    /// The permits of a semaphore and those who wait, without writing down a maximum, as who takes
    /// part does.
    fn permits(&self) -> zklock::Result<Vec<Seen>> {
        if self.dialect == Dialect::Kazoo {
            let queue = self.semaphore()?.participants()?.into_iter();
            return Ok(queue
                .map(|participant| Seen {
                    holds: participant.is_holder(),
                    participant,
                })
                .collect());
        }
        let leases = self.leases()?.participants()?;
        let waiters = self.mutex(&self.front_path())?.participants()?;
        // The first of those who wait may have a lease that does not fit yet.
        let max = self.max()?.unwrap_or(u32::MAX);
        let leases = leases
            .into_iter()
            .zip(0..)
            .map(|(participant, position)| Seen {
                participant,
                holds: position < max,
            });
        let waiters = waiters.into_iter().map(|participant| Seen {
            participant,
            holds: false,
        });
        Ok(leases.chain(waiters).collect())
    }

    /// What is written as a semaphore's maximum; `None` if it is not there to be read.
    fn max(&self) -> zklock::Result<Option<u32>> {
        let node = self.client.node(self.path)?;
        let text = node.and_then(|node| String::from_utf8(node.data().to_vec()).ok());
        Ok(text.and_then(|text| text.parse().ok()))
    }

    fn leases_path(&self) -> String {
        format!("{}/leases", self.path)
    }

    fn front_path(&self) -> String {
        format!("{}/locks", self.path)
    }

    /// Leases are named as contenders are.
    fn leases(&self) -> zklock::Result<Mutex> {
        let name = LockName::new("lease-")?;
        Mutex::builder(self.client, &self.leases_path())
            .name(name)
            .build()
    }

    fn mutex(&self, path: &str) -> zklock::Result<Mutex> {
        let builder = Mutex::builder(self.client, path);
        builder.dialect(self.dialect).build()
    }

    fn readers_and_writers(&self) -> zklock::Result<RwLock> {
        let builder = RwLock::builder(self.client, self.path);
        builder.dialect(self.dialect).build()
    }

    fn election(&self) -> zklock::Result<Election> {
        Election::builder(self.client, self.path)
            .dialect(self.dialect)
            .build()
    }

    fn semaphore(&self) -> zklock::Result<Semaphore> {
        let max = self.max()?.unwrap_or(1).max(1);
        let builder = Semaphore::builder(self.client, self.path);
        builder.dialect(self.dialect).max(max).build()
    }
}

fn is_guid(text: &str, lengths: &[usize]) -> bool {
    lengths.contains(&text.len())
        && text
            .bytes()
            .enumerate()
            .all(|(at, byte)| match (text.len(), at) {
                (36, 8 | 13 | 18 | 23) => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contender_tells_what_its_folder_is() {
        let guid = "01234567-89ab-cdef-0123-456789abcdef";
        let bare = "0123456789abcdef0123456789abcdef";
        for (name, dialect, kind) in [
            (
                format!("_c_{guid}-lock-0000000007"),
                Dialect::Curator,
                Some(Kind::Mutex),
            ),
            (
                format!("_c_{bare}-lock-0000000007"),
                Dialect::Curator,
                Some(Kind::Mutex),
            ),
            (
                format!("{bare}-lock-0000000007"),
                Dialect::Curator,
                Some(Kind::Mutex),
            ),
            (
                format!("{bare}lock-0000000007"),
                Dialect::Curator,
                Some(Kind::Mutex),
            ),
            (
                "lock-0000000007".to_owned(),
                Dialect::Curator,
                Some(Kind::Mutex),
            ),
            (
                format!("_c_{guid}-__READ__0000000007"),
                Dialect::Curator,
                Some(Kind::ReadersAndWriters),
            ),
            (
                format!("_c_{guid}-__WRIT__0000000007"),
                Dialect::Curator,
                Some(Kind::ReadersAndWriters),
            ),
            (
                format!("_c_{guid}-latch-0000000007"),
                Dialect::Curator,
                Some(Kind::Election),
            ),
            ("leases".to_owned(), Dialect::Curator, Some(Kind::Semaphore)),
            (format!("{bare}__lock__0000000007"), Dialect::Curator, None),
            (
                format!("{bare}__lock__0000000007"),
                Dialect::Kazoo,
                Some(Kind::Mutex),
            ),
            (
                format!("{bare}__rlock__0000000007"),
                Dialect::Kazoo,
                Some(Kind::ReadersAndWriters),
            ),
            ("locks".to_owned(), Dialect::Curator, None),
            (bare.to_owned(), Dialect::Kazoo, Some(Kind::Semaphore)),
            ("hello".to_owned(), Dialect::Curator, None),
            ("block-0000000007".to_owned(), Dialect::Curator, None),
            ("日本日本日本".to_owned(), Dialect::Curator, None),
        ] {
            assert_eq!(Kind::of_child(&name, dialect), kind, "{name}");
        }
    }
}
