//! Paths of nodes, checked once at the public call.

use std::fmt;
use std::sync::Arc;

/// The longest part of a bad path that an error message repeats.
const SHOWN_CHARS: usize = 80;

/// An absolute path that ZooKeeper accepts, not the root: the folder of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LockPath(Arc<str>);

impl LockPath {
    /// Checks `path`. The error says what is wrong with it, and where.
    pub(crate) fn parse(path: &str) -> Result<Self, String> {
        if path == "/" {
            return Err("\"/\": the root cannot be a lock; choose a path below it".into());
        }
        check(path).map_err(|why| format!("\"{}\": {why}", shown(path)))?;
        if path == "/zookeeper" || path.starts_with("/zookeeper/") {
            let path = shown(path);
            return Err(format!("\"{path}\": /zookeeper belongs to the server"));
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
fn is_refused(c: char) -> bool {
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
            "/zookeeperx",
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
            ("/a/", "end with"),
            ("/a/../b", "\"..\" at byte 3"),
            ("/./a", "\".\" at byte 1"),
            ("/a\nb", "U+000A at byte 2"),
            ("/a\u{7f}", "U+007F"),
            ("/a\u{FFFD}", "U+FFFD"),
            ("/a😀", "U+1F600"),
            ("/\u{E000}", "U+E000"),
            ("/zookeeper", "belongs to the server"),
            ("/zookeeper/quota", "belongs to the server"),
        ] {
            let error = LockPath::parse(bad).expect_err(bad);
            assert!(error.contains(why), "{bad:?}: {error}");
        }
        let long = format!("/{}", "x\u{1}".repeat(10_000));
        assert!(LockPath::parse(&long).expect_err("control").len() < 1_000);
    }

    #[test]
    fn splits_folder_and_name() {
        assert_eq!(split("/a/b"), ("/a", "b"));
        assert_eq!(split("/a"), ("", "a"));
    }

    proptest! {
        #[test]
        fn never_panics(path in "\\PC*") {
            let _ = LockPath::parse(&path);
        }

        #[test]
        fn what_is_accepted_has_no_empty_segment(path in "(/[a-c.]{0,3}){0,5}") {
            if LockPath::parse(&path).is_ok() {
                prop_assert!(path[1..].split('/').all(|s| !matches!(s, "" | "." | "..")));
            }
        }
    }
}
