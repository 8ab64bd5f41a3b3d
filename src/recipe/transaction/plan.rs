//! The steps of a transaction, and the changes that they come to. Some depend on what exists, which
//! a multi cannot ask: that is looked at before, and each change is such that the servers refuse the
//! whole if it has become another.

use std::collections::HashSet;
use std::sync::Arc;

use zklock_protocol::CreateMode;

use crate::session::backend::Change;

/// A step as the caller gave it.
#[derive(Clone, Debug)]
pub(super) enum Planned {
    Change(Change),
    /// The node is there, with those above it.
    Ensure {
        path: String,
    },
    /// The node is there with this data, and those above it are.
    Put {
        path: String,
        data: Arc<[u8]>,
    },
}

impl Planned {
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Change(change) => change.path(),
            Self::Ensure { path } | Self::Put { path, .. } => path,
        }
    }
}

/// The nodes of which must be known whether they exist, each once.
pub(super) fn in_question(steps: &[Planned]) -> Vec<String> {
    let mut paths = Vec::new();
    let mut known = HashSet::new();
    for step in steps {
        if let Planned::Ensure { path } | Planned::Put { path, .. } = step {
            let with_parents = above(path).chain([path.as_str()]);
            paths.extend(
                with_parents
                    .filter(|path| known.insert(*path))
                    .map(str::to_owned),
            );
        }
    }
    paths
}

/// The nodes above `path`, from the top down, without the root.
fn above(path: &str) -> impl Iterator<Item = &str> {
    let slashes = path.match_indices('/').skip(1);
    slashes.map(|(at, _)| &path[..at])
}

/// The changes that make up the steps if `exists` are there, of those [in question](in_question);
/// each with the number of its step.
pub(super) fn plan(steps: &[Planned], mut exists: HashSet<String>) -> Vec<(usize, Change)> {
    let mut changes = Vec::with_capacity(steps.len());
    for (number, step) in steps.iter().enumerate() {
        match step {
            Planned::Change(change) => {
                match change {
                    Change::Create { path, .. } => drop(exists.insert(path.clone())),
                    Change::Delete { path, .. } => drop(exists.remove(path)),
                    Change::Set { .. } | Change::Check { .. } => {}
                }
                changes.push((number, change.clone()));
            }
            Planned::Ensure { path } => {
                if exists.contains(path) {
                    // So that it is there at that moment, and not only when we looked.
                    let (path, version) = (path.clone(), None);
                    changes.push((number, Change::Check { path, version }));
                }
                for path in above(path).chain([path.as_str()]) {
                    changes.extend(missing(&mut exists, path, &[]).map(|made| (number, made)));
                }
            }
            Planned::Put { path, data } => {
                for path in above(path) {
                    changes.extend(missing(&mut exists, path, &[]).map(|made| (number, made)));
                }
                let made = missing(&mut exists, path, data);
                let made = made.unwrap_or_else(|| Change::Set {
                    path: path.clone(),
                    data: Arc::clone(data),
                    version: None,
                });
                changes.push((number, made));
            }
        }
    }
    changes
}

/// Makes a node that is not there; from here on it is.
fn missing(exists: &mut HashSet<String>, path: &str, data: &[u8]) -> Option<Change> {
    exists.insert(path.to_owned()).then(|| Change::Create {
        path: path.to_owned(),
        data: Arc::from(data),
        mode: CreateMode::PERSISTENT,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ensure(path: &str) -> Planned {
        let path = path.to_owned();
        Planned::Ensure { path }
    }

    fn put(path: &str) -> Planned {
        let (path, data) = (path.to_owned(), Arc::from(&b"x"[..]));
        Planned::Put { path, data }
    }

    fn delete(path: &str) -> Planned {
        let (path, version) = (path.to_owned(), None);
        Planned::Change(Change::Delete { path, version })
    }

    fn planned(steps: &[Planned], exists: &[&str]) -> Vec<String> {
        let exists = exists.iter().map(|path| (*path).to_owned()).collect();
        let changes = plan(steps, exists).into_iter();
        let shown = changes.map(|(number, change)| {
            let kind = match &change {
                Change::Create { data, .. } if data.is_empty() => "make",
                Change::Create { .. } => "create",
                Change::Set { .. } => "set",
                Change::Delete { .. } => "delete",
                Change::Check { .. } => "check",
            };
            format!("{number} {kind} {}", change.path())
        });
        shown.collect()
    }

    #[test]
    fn makes_what_is_missing_once_and_from_the_top_down() {
        let steps = [ensure("/a/b"), put("/a/c/d"), ensure("/a/b")];
        assert_eq!(in_question(&steps), ["/a", "/a/b", "/a/c", "/a/c/d"]);
        assert_eq!(
            planned(&steps, &[]),
            [
                "0 make /a",
                "0 make /a/b",
                "1 make /a/c",
                "1 create /a/c/d",
                "2 check /a/b"
            ]
        );
        assert_eq!(
            planned(&steps, &["/a", "/a/c", "/a/c/d"]),
            ["0 make /a/b", "1 set /a/c/d", "2 check /a/b"]
        );
    }

    #[test]
    fn a_step_sees_those_before_it() {
        let steps = [delete("/a"), put("/a"), delete("/a"), ensure("/a")];
        let made = ["0 delete /a", "1 create /a", "2 delete /a", "3 make /a"];
        assert_eq!(planned(&steps, &["/a"]), made);
    }
}
