//! The ledger: a file that any process can write to.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Result;

/// One line of the ledger: an update of the balance from `old` to `new`.
pub(crate) struct Entry {
    pub(crate) token: u64,
    /// The process that wrote it.
    pub(crate) worker: u32,
    pub(crate) thread: usize,
    /// When its section began and when it was written, in nanoseconds since 1970. One machine, so
    /// one clock.
    pub(crate) begun: u128,
    pub(crate) written: u128,
    pub(crate) old: u64,
    pub(crate) new: u64,
}

impl Entry {
    pub(crate) fn parse(line: &str) -> Result<Self> {
        let mut words = line.split(' ');
        let mut next = || words.next().ok_or("the ledger has a torn line");
        Ok(Self {
            token: next()?.parse()?,
            worker: next()?.parse()?,
            thread: next()?.parse()?,
            begun: next()?.parse()?,
            written: next()?.parse()?,
            old: next()?.parse()?,
            new: next()?.parse()?,
        })
    }
}

/// A file that only grows: the last line has the balance and the largest token.
///
/// The balance is read and written in two steps that nothing in here joins: two writers at a time
/// would lose updates. To keep them apart is what the distributed lock is for.
pub(crate) struct Ledger(File);

impl Ledger {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().read(true).append(true).open(path);
        Ok(Self(file.map_err(|error| at(path, &error))?))
    }

    pub(crate) fn last(&mut self) -> Result<Option<Entry>> {
        let length = self.0.seek(SeekFrom::End(0))?;
        self.0.seek(SeekFrom::Start(length.saturating_sub(256)))?;
        let mut end = String::new();
        self.0.read_to_string(&mut end)?;
        end.lines().next_back().map(Entry::parse).transpose()
    }

    /// Appends `entry`, unless a larger token was here: then its holder is late, and `false`.
    ///
    /// The file's own lock makes one step of the compare and the append, as a store must. It is
    /// not held while the balance is read, so it does not do the distributed lock's work.
    pub(crate) fn append(&mut self, entry: &Entry) -> Result<bool> {
        self.0.lock()?;
        let largest = self.last()?.map_or(0, |last| last.token);
        let in_time = entry.token >= largest;
        if in_time {
            self.0.write_all(entry.to_string().as_bytes())?;
        }
        self.0.unlock()?;
        Ok(in_time)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (token, worker, thread) = (self.token, self.worker, self.thread);
        let (begun, written, old, new) = (self.begun, self.written, self.old, self.new);
        writeln!(f, "{token} {worker} {thread} {begun} {written} {old} {new}")
    }
}

pub(crate) fn at(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

pub(crate) fn nanos() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos())
}
