//! The part of a node's name between GUID and number, where the caller chooses it.

use std::fmt;

use uuid::Uuid;

use crate::error::{Error, Result};

/// The longest label, in bytes.
const MAX_BYTES: usize = 128;

/// What Curator's protected names begin with.
pub(super) const PROTECTION: &str = "_c_";

/// The part of the node names that belongs to one lock, so that several can share a folder.
///
/// With Curator's dialect a node is named `_c_<uuid>-<name><10 digits>`, with kazoo's
/// `<32 hex digits><name><10 digits>`. A name is matched as a whole: `a-` and `b-a-` are two locks.
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let client = zklock::Client::connect(&server.connect_string())?;
/// use zklock::{LockName, Mutex};
///
/// // Two locks that do not exclude each other, in one folder.
/// let orders = Mutex::builder(&client, "/locks").name(LockName::new("orders-")?).build()?;
/// let bills = Mutex::builder(&client, "/locks").name(LockName::new("bills-")?).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockName(String);

impl LockName {
    /// Checks a name. It must have 2 to 128 bytes, contain no `/` and nothing else that ZooKeeper
    /// refuses in a path, and end in exactly one `-` or `_`, which separates it from the number. (A
    /// second `-` could be a sign: the server's numbers become negative after 2147483647.) It must
    /// not begin with what belongs in front of a name: `-`, Curator's mark `_c_`, or 32 hex digits.
    ///
    /// Also refused are names that contain Curator's own `lock-`, such as `block-`, and names that
    /// end in kazoo's own `__lock__`, unless that is all of the name. Those libraries look for
    /// these parts alone: their locks would wait for ours, but ours not for theirs.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the name is refused; the text says why.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// let orders = zklock::LockName::new("orders-")?;
    /// # let _ = orders;
    /// assert!(zklock::LockName::new("block-").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let checked = check(&name)
            .and_then(|()| check_beginning(&name))
            .and_then(|()| check_peers(&name));
        match checked {
            Ok(()) => Ok(Self(name)),
            Err(why) => Err(Error::invalid(format!("lock name {name:?}: {why}"))),
        }
    }

    pub(super) fn into_label(self) -> String {
        self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The labels of somebody's own read-write lock, told apart behind any prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RwLabels {
    pub(super) read: String,
    pub(super) write: String,
}

impl RwLabels {
    pub(crate) fn new(read: String, write: String) -> Result<Self> {
        for (what, label) in [("read", &read), ("write", &write)] {
            let invalid = |why| Error::invalid(format!("{what} label {label:?}: {why}"));
            check(label).map_err(invalid)?;
        }
        // Behind any prefix a node of the longer one would be a node of the shorter one, too.
        if read.ends_with(&write) || write.ends_with(&read) {
            return Err(Error::invalid(format!(
                "labels {read:?} and {write:?}: neither must end in the other, \
                 so that readers and writers can be told apart"
            )));
        }
        Ok(Self { read, write })
    }
}

/// What any label must be.
fn check(label: &str) -> std::result::Result<(), String> {
    let separated = match label.strip_suffix('-') {
        // Otherwise `a_` and `a_-` would be two labels, and `a_-2147483647` a node of both.
        Some(rest) => !rest.ends_with(['-', '_']),
        None => label.ends_with('_'),
    };
    if label.len() < 2 || label.len() > MAX_BYTES {
        Err(format!("it must have 2 to {MAX_BYTES} bytes"))
    } else if label.contains('/') {
        Err("it must not contain \"/\"".to_owned())
    } else if !separated {
        Err("it must end in one \"-\" or \"_\", so that the number can be told apart".to_owned())
    } else {
        crate::znode::path::check(&format!("/{label}x"))
    }
}

/// Otherwise one node could be read as two locks': `-a-` behind a bare GUID is `a-` behind a GUID
/// and a dash, `_c_<guid>-a-` without protection is `a-` with protection.
fn check_beginning(name: &str) -> std::result::Result<(), String> {
    let marks = ["-", PROTECTION];
    if let Some(mark) = marks.into_iter().find(|mark| name.starts_with(mark)) {
        return Err(format!("it must not begin with {mark:?}"));
    }
    let begins_with_guid = name
        .get(..32)
        .is_some_and(|beginning| guid_of_length(beginning, &[32]).is_some());
    if begins_with_guid {
        return Err("it must not begin with 32 hexadecimal digits".to_owned());
    }
    Ok(())
}

/// Curator orders by the text after the last `lock-` in a child's name, and ignores what is before
/// it. kazoo looks for a name's end, and ignores what is before that.
fn check_peers(name: &str) -> std::result::Result<(), String> {
    let (curators, kazoos) = ("lock-", "__lock__");
    let (whose, part) = if name != curators && name.contains(curators) {
        ("Curator", curators)
    } else if name != kazoos && name.ends_with(kazoos) {
        ("kazoo", kazoos)
    } else {
        return Ok(());
    };
    Err(format!(
        "{whose}'s locks in the same folder would wait for its nodes, because of the {part:?} in \
         it, and not be waited for"
    ))
}

/// The length tells the form: 32 is bare hexadecimal, 36 has the four dashes. The others that the
/// `uuid` crate knows, in braces or as a URN, are longer.
pub(super) fn guid_of_length(text: &str, lengths: &[usize]) -> Option<Uuid> {
    lengths
        .contains(&text.len())
        .then(|| Uuid::try_parse(text).ok())
        .flatten()
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn refuses_names_that_could_not_be_told_apart() {
        let long = format!("{}-", "x".repeat(MAX_BYTES));
        let guid = "0123456789abcdef0123456789ABCDEF-";
        for bad in [
            "", "-", "_", "a", "a/b-", "a1", "a--", "a_-", "a\n-", "😀-", "é", "-a-", "_c_a-",
            guid, &long,
        ] {
            assert!(LockName::new(bad).expect_err(bad).is_invalid());
        }
        let almost = &guid[1..];
        for good in [
            "lock-",
            "__lock__",
            "__rlock__",
            "shard-7-",
            "é_",
            "a b-",
            almost,
            &long[1..],
        ] {
            assert_eq!(LockName::new(good).expect(good).to_string(), good);
        }
    }

    /// Curator takes the text after the last `lock-` for the number: a `block-` in the same folder
    /// was waited for, and did not wait; and so was `lock-0-`, which it takes for a text that comes
    /// before all numbers.
    #[test]
    fn refuses_names_that_a_peer_would_count_as_its_own() {
        for bad in ["block-", "orders-lock-", "lock-0-", "-lock-", "b__lock__"] {
            let error = LockName::new(bad).expect_err(bad);
            assert!(error.is_invalid());
        }
        for good in ["blocks-", "lock_", "Block_", "__lock__-b_", "lock__"] {
            LockName::new(good).expect(good);
        }
    }

    #[test]
    fn refuses_labels_that_could_not_be_told_apart() {
        let labels = |read: &str, write: &str| RwLabels::new(read.into(), write.into());
        for (read, write) in [
            ("-R-", "-R-"),
            ("R-", "-R-"),
            ("-W-", "W-"),
            ("R", "W-"),
            ("R-", "W--"),
            ("R-", "-"),
            ("", "W-"),
            ("R/-", "W-"),
        ] {
            assert!(labels(read, write).expect_err(read).is_invalid());
        }
        for (read, write) in [("-R-", "-W-"), ("read-", "write-"), ("__READ__", "_c_W-")] {
            labels(read, write).expect(read);
        }
    }
}
