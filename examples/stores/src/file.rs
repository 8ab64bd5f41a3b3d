//! A file that is replaced as a whole, on one machine: a lock of the operating system around "compare, write, rename".
//!
//! The first line of the file is the token, so the two cannot come apart. The lock is on a file beside it, which is
//! never removed. The kernel gives it back when its process dies, and never before: a writer that is stopped in the middle
//! keeps it, so the next one waits and no late write can come, until the writer goes on or somebody kills it.
//!
//! It fences those who write in this way, and nobody else. No file system compares a token: a program that opens the file and
//! writes to it is not stopped. On network file systems the lock itself can be lost to others; do not use it there.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use zklock::FencingToken;

use crate::WriteError;

/// What is in the file: empty if it was never written.
///
/// # Errors
/// Errors of the file system.
pub fn read(path: &Path) -> io::Result<String> {
    read_with_token(path).map(|(_, body)| body)
}

/// Replaces what is in the file by what `change` makes of it. Reading, comparing and writing are one step for all who
/// use this function, so nothing need be taken over before.
///
/// # Errors
/// [`WriteError::Late`]; errors of the file system.
pub fn update(
    path: &Path,
    token: FencingToken,
    change: impl FnOnce(&str) -> String,
) -> Result<(), WriteError<io::Error>> {
    // Given back when it is dropped.
    let lock = File::create(beside(path, "lock"))?;
    lock.lock()?;
    let (newest, before) = read_with_token(path)?;
    if newest.is_some_and(|newest| token < newest) {
        return Err(WriteError::Late);
    }
    let after = change(&before);
    // Whoever died here has left a part of it.
    let new = beside(path, "new");
    let mut file = File::create(&new)?;
    write!(file, "{token}\n{after}")?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // The rename too is to outlive a power cut.
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(())
}

fn read_with_token(path: &Path) -> io::Result<(Option<FencingToken>, String)> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((None, String::new())),
        text => text?,
    };
    let no_token = || io::Error::other(format!("{}: no token in its first line", path.display()));
    let (token, body) = text.split_once('\n').ok_or_else(no_token)?;
    let token: u64 = token.parse().map_err(|_| no_token())?;
    Ok((Some(token.into()), body.to_owned()))
}

fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    name.into()
}
