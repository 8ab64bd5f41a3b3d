//! Paths of nodes, checked once at the public call.

use std::fmt;
use std::sync::Arc;

/// The longest part of a bad path that an error message repeats.
const SHOWN_CHARS: usize = 80;

/// The longest path of a lock. ZooKeeper's own limit is that of a whole request (about 1 MiB),
/// which a path must leave room in for a node's name and data.
const MAX_PATH_BYTES: usize = 4096;

/// An absolute path that ZooKeeper accepts, not the root: the folder of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LockPath(Arc<str>);

impl LockPath {
    /// Checks `path`. The error says what is wrong with it, and where.
    pub(crate) fn parse(path: &str) -> Result<Self, String> {
        if path == "/" {
            return Err("\"/\": the root cannot be a lock; choose a path below it".into());
        }
        let refused = |why: String| format!("\"{}\": {why}", shown(path));
        check_any(path)?;
        if path.len() > MAX_PATH_BYTES {
            let bytes = path.len();
            return Err(refused(format!(
                "{bytes} bytes; a lock's path may have {MAX_PATH_BYTES}"
            )));
        }
        if path == "/zookeeper" || path.starts_with("/zookeeper/") {
            return Err(refused("/zookeeper belongs to the server".into()));
        }
        Ok(Self(path.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The path of the child with this name.
    pub(crate) fn child(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }

    /// What is above it, from the top down and without the root: `/a` and `/a/b` for `/a/b/c`.
    #[cfg(test)]
    fn parents(&self) -> impl Iterator<Item = &str> {
        let slashes = self.0.match_indices('/').skip(1);
        slashes.map(|(at, _)| &self.0[..at])
    }
}

impl fmt::Display for LockPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Folder and name of a path: `/a/b` is `b` in `/a`, and `/a` is `a` in the empty path.
pub(crate) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// As [`check`]; the error names the path.
pub(crate) fn check_any(path: &str) -> Result<(), String> {
    check(path).map_err(|why| format!("\"{}\": {why}", shown(path)))
}

/// Whether the server would take `path`, by the rules of its `PathUtils.validatePath`.
pub(crate) fn check(path: &str) -> Result<(), String> {
    let Some(rest) = path.strip_prefix('/') else {
        return Err("a path must begin with \"/\"".into());
    };
    if let Some((at, c)) = path.char_indices().find(|(_, c)| is_refused(*c)) {
        let code = u32::from(c);
        return Err(format!(
            "ZooKeeper refuses the character U+{code:04X} at byte {at}"
        ));
    }
    let mut at = 1;
    for segment in rest.split('/') {
        match segment {
            "" if at > path.len() - 1 => return Err("a path must not end with \"/\"".into()),
            "" => return Err(format!("nothing between the slashes at byte {at}")),
            "." | ".." => return Err(format!("relative segment \"{segment}\" at byte {at}")),
            _ => at += segment.len() + 1,
        }
    }
    Ok(())
}

/// ZooKeeper refuses control characters, private use, and what takes two UTF-16 units (its check
/// sees each unit alone, and refuses surrogates).
pub(crate) fn is_refused(c: char) -> bool {
    matches!(c,
        '\u{0}'..='\u{1F}' | '\u{7F}'..='\u{9F}' | '\u{E000}'..='\u{F8FF}' | '\u{FFF0}'..)
}

fn shown(path: &str) -> String {
    let mut shown: String = path
        .chars()
        .take(SHOWN_CHARS)
        .flat_map(char::escape_debug)
        .collect();
    if path.chars().nth(SHOWN_CHARS).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn takes_what_zookeeper_takes() {
        for good in [
            "/a",
            "/a/b",
            "/a b/c",
            "/ä/日本",
            "/...",
            "/a.b",
            "/.a",
            "/a/..b",
            "/zookeeperx",
            "/a/zookeeper",
            "/\u{F900}\u{FFEF}\u{A0}\u{20}\u{7E}",
        ] {
            assert_eq!(LockPath::parse(good).expect(good).as_str(), good);
        }
    }

    #[test]
    fn refuses_the_rest_and_says_where() {
        for (bad, why) in [
            ("", "begin with"),
            ("a", "begin with"),
            ("a/b", "begin with"),
            ("/", "root"),
            ("//", "byte 1"),
            ("/a//b", "byte 3"),
            ("//a", "byte 1"),
            ("/a/", "end with"),
            ("/a/../b", "\"..\" at byte 3"),
            ("/./a", "\".\" at byte 1"),
            ("/a/.", "\".\" at byte 3"),
            ("/a\nb", "U+000A at byte 2"),
            ("/a\0", "U+0000"),
            ("/a\u{1F}", "U+001F"),
            ("/a\u{7F}", "U+007F"),
            ("/a\u{9F}", "U+009F"),
            ("/\u{E000}", "U+E000"),
            ("/\u{F8FF}", "U+F8FF"),
            ("/\u{FFF0}", "U+FFF0"),
            ("/a\u{FFFD}", "U+FFFD"),
            ("/ä/😀", "U+1F600 at byte 4"),
            ("/\u{10FFFF}", "U+10FFFF"),
            ("/zookeeper", "belongs to the server"),
            ("/zookeeper/quota", "belongs to the server"),
        ] {
            let error = LockPath::parse(bad).expect_err(bad);
            assert!(error.contains(why), "{bad:?}: {error}");
            assert!(!error.contains(char::is_control), "{bad:?}: {error}");
        }
    }

    #[test]
    fn paths_and_messages_are_bounded() {
        let longest = format!("/{}", "x".repeat(MAX_PATH_BYTES - 1));
        assert!(LockPath::parse(&longest).is_ok());
        for bad in [format!("{longest}x"), format!("/{}", "x\u{1}".repeat(9999))] {
            assert!(LockPath::parse(&bad).expect_err("bad").len() < 1_000);
        }
    }

    #[test]
    fn splits_folder_and_name() {
        assert_eq!(split("/a/b"), ("/a", "b"));
        assert_eq!(split("/a"), ("", "a"));
    }

    #[test]
    fn parents_come_from_the_top_down() {
        let path = LockPath::parse("/a/bc/d").expect("good");
        assert_eq!(path.parents().collect::<Vec<_>>(), ["/a", "/a/bc"]);
        assert_eq!(path.child("e"), "/a/bc/d/e");
        assert_eq!(LockPath::parse("/a").expect("good").parents().count(), 0);
    }

    proptest! {
        #[test]
        fn never_panics(path in any::<String>()) {
            let _ = LockPath::parse(&path);
            let _ = LockPath::parse(&format!("/{path}"));
        }

        #[test]
        fn what_is_accepted_has_no_empty_segment(path in "(/[a-c.]{0,3}){0,5}") {
            if LockPath::parse(&path).is_ok() {
                prop_assert!(path[1..].split('/').all(|s| !matches!(s, "" | "." | "..")));
            }
        }

        #[test]
        fn every_parent_is_a_path_of_its_own(path in "(/[a-zäß][a-z.]{0,3}){1,6}") {
            let path = LockPath::parse(&path).expect("good");
            let mut below = path.as_str();
            for parent in path.parents().collect::<Vec<_>>().into_iter().rev() {
                prop_assert!(LockPath::parse(parent).is_ok());
                prop_assert_eq!(split(below).0, parent);
                below = parent;
            }
            prop_assert_eq!(split(below).0, "");
        }
    }
}
