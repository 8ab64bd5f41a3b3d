//! Which paths a server takes, and what lies above them.

/// Whether a server would make a node of this path.
pub(crate) fn is_valid(path: &str) -> bool {
    if path == "/" {
        return true;
    }
    let Some(names) = path.strip_prefix('/') else {
        return false;
    };
    names
        .split('/')
        .all(|name| !matches!(name, "" | "." | "..") && name.chars().all(is_allowed))
}

/// ZooKeeper looks at UTF-16: what takes two units is in the range of the surrogates.
fn is_allowed(c: char) -> bool {
    !matches!(
        u32::from(c),
        0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..
    )
}

/// What stands before the last `/`: empty for the nodes below the root. None if there is no `/`.
pub(crate) fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent)
}

/// The path by which a node's watches are known: the root's has a second spelling.
pub(crate) fn shown(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

/// The nodes that every server has.
pub(crate) const QUOTA: &str = "/zookeeper/quota";
pub(crate) const CONFIG: &str = "/zookeeper/config";
pub(crate) const SYSTEM: &str = "/zookeeper";
/// All of them, and the root.
pub(crate) const OWN: [&str; 4] = ["/", SYSTEM, QUOTA, CONFIG];

pub(crate) fn is_special(path: &str) -> bool {
    matches!(path, "/" | SYSTEM | QUOTA | CONFIG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_and_refuses_what_zookeeper_does() {
        for path in ["/", "/a", "/a/b", "/a b", "/..a", "/a..", "/ä", "/a/.b"] {
            assert!(is_valid(path), "{path:?}");
        }
        for path in [
            "",
            "a",
            "/a/",
            "//",
            "/a//b",
            "/.",
            "/..",
            "/a/./b",
            "/a/..",
            "/\0",
            "/a\u{1f}",
            "/\u{7f}",
            "/\u{e000}",
            "/\u{fffd}",
            "/🔒",
        ] {
            assert!(!is_valid(path), "{path:?}");
        }
    }

    #[test]
    fn the_parent_of_what_is_below_the_root_is_empty() {
        assert_eq!(parent("/a/b"), Some("/a"));
        assert_eq!(parent("/a"), Some(""));
        assert_eq!(parent("a"), None);
        assert_eq!(shown(""), "/");
    }
}
