//! The steps of a transaction, and the changes that they come to. Some depend on what exists, which
//! a multi cannot ask: that is looked at before, and each change is such that the servers refuse the
//! whole if it has become another.

use std::collections::HashSet;

use zklock_protocol::{ANY_VERSION, CreateMode, Request};

use crate::session::new_node;

/// A step as the caller gave it.
#[derive(Clone, Debug)]
pub(super) enum Planned {
    Change(Request),
    /// The node is there, with those above it.
    Ensure {
        path: String,
    },
    /// The node is there with this data, and those above it are.
    Put {
        path: String,
        data: Vec<u8>,
    },
}

impl Planned {
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Change(change) => change.path().unwrap_or_default(),
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
pub(super) fn plan(steps: &[Planned], mut exists: HashSet<String>) -> Vec<(usize, Request)> {
    let mut changes = Vec::with_capacity(steps.len());
    for (number, step) in steps.iter().enumerate() {
        match step {
            Planned::Change(change) => {
                match change {
                    Request::Create(node) => drop(exists.insert(node.path.clone())),
                    Request::Delete { path, .. } => drop(exists.remove(path)),
                    _ => {}
                }
                changes.push((number, change.clone()));
            }
            Planned::Ensure { path } => {
                if exists.contains(path) {
                    // So that it is there at that moment, and not only when we looked.
                    let (path, version) = (path.clone(), ANY_VERSION);
                    changes.push((number, Request::Check { path, version }));
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
                let made = made.unwrap_or_else(|| Request::SetData {
                    path: path.clone(),
                    data: Some(data.clone()),
                    version: ANY_VERSION,
                });
                changes.push((number, made));
            }
        }
    }
    changes
}

/// Makes a node that is not there; from here on it is.
fn missing(exists: &mut HashSet<String>, path: &str, data: &[u8]) -> Option<Request> {
    let make = || new_node(path.to_owned(), data, CreateMode::PERSISTENT);
    exists.insert(path.to_owned()).then(make)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ensure(path: &str) -> Planned {
        let path = path.to_owned();
        Planned::Ensure { path }
    }

    fn put(path: &str) -> Planned {
        let (path, data) = (path.to_owned(), b"x".to_vec());
        Planned::Put { path, data }
    }

    fn delete(path: &str) -> Planned {
        let (path, version) = (path.to_owned(), ANY_VERSION);
        Planned::Change(Request::Delete { path, version })
    }

    fn planned(steps: &[Planned], exists: &[&str]) -> Vec<String> {
        let exists = exists.iter().map(|path| (*path).to_owned()).collect();
        let changes = plan(steps, exists).into_iter();
        let shown = changes.map(|(number, change)| {
            let kind = match &change {
                Request::Create(node) if node.data.as_deref() == Some(&[]) => "make",
                Request::Create(_) => "create",
                Request::SetData { .. } => "set",
                Request::Delete { .. } => "delete",
                _ => "check",
            };
            format!("{number} {kind} {}", change.path().unwrap_or_default())
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
