//! Where this machine keeps ZooKeeper and Java.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const DEBIAN_JARS: &str = "/usr/share/java";

/// What is needed to start a server.
#[derive(Debug)]
pub(crate) struct Installation {
    pub(crate) java: PathBuf,
    pub(crate) class_path: OsString,
    /// What a server that speaks TLS needs besides.
    pub(crate) netty: OsString,
}

impl Installation {
    /// Finds the server in `$ZOOKEEPER_HOME` or in Debian's folder. A missing
    /// one is a panic that says what to run: a skipped test proves nothing.
    pub(crate) fn find() -> &'static Installation {
        static FOUND: OnceLock<Installation> = OnceLock::new();
        FOUND.get_or_init(Installation::look)
    }

    fn look() -> Installation {
        let class_path = match env::var_os("ZOOKEEPER_HOME") {
            Some(home) => tarball_class_path(Path::new(&home)).unwrap_or_else(|| {
                panic!(
                    "ZOOKEEPER_HOME is {}, but there is no zookeeper-*.jar in it or in its lib/",
                    home.display()
                )
            }),
            None => debian_class_path().unwrap_or_else(|| {
                panic!(
                    "the tests need a ZooKeeper server and found none \
                     ($ZOOKEEPER_HOME is not set, {DEBIAN_JARS}/zookeeper.jar is missing).\n\
                     Run: scripts/install-zookeeper"
                )
            }),
        };
        Installation {
            java: java(),
            class_path,
            netty: debian_netty(),
        }
    }
}

/// The layout of the Apache tarball: jars in `lib/`, or at the top.
fn tarball_class_path(home: &Path) -> Option<OsString> {
    let has_server = |folder: &Path| {
        folder.read_dir().is_ok_and(|entries| {
            entries.flatten().any(|entry| {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                name.starts_with("zookeeper") && name.ends_with(".jar")
            })
        })
    };
    let lib = home.join("lib");
    if !has_server(home) && !has_server(&lib) {
        return None;
    }
    // `folder/*` is Java's own notation for all jars of a folder.
    let joined = env::join_paths([home.join("*"), lib.join("*")]);
    Some(joined.expect("a folder with a colon in its name cannot be on a class path"))
}

/// Debian's server jar names its dependencies in its manifest, all but a
/// logger. slf4j's plain one needs no configuration file.
fn debian_class_path() -> Option<OsString> {
    let jars = Path::new(DEBIAN_JARS);
    let server = jars.join("zookeeper.jar");
    if !server.exists() {
        return None;
    }
    let joined = env::join_paths([server, jars.join("slf4j-simple.jar")]);
    Some(joined.expect("no colon in these names"))
}

/// The manifest of Debian's server jar leaves out half of netty. A release brings it in its `lib`.
fn debian_netty() -> OsString {
    let jars = Path::new(DEBIAN_JARS);
    let Ok(entries) = jars.read_dir() else {
        return OsString::new();
    };
    let jars = entries.flatten().map(|entry| entry.path()).filter(|jar| {
        let name = jar.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("netty-") && name.ends_with(".jar")
    });
    env::join_paths(jars).expect("no colon in these names")
}

fn java() -> PathBuf {
    let java = match env::var_os("JAVA_HOME") {
        Some(home) => Path::new(&home).join("bin/java"),
        None => PathBuf::from("java"),
    };
    let runs = Command::new(&java)
        .arg("-version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    assert!(
        runs,
        "the tests need Java to run a ZooKeeper server, and `{} -version` fails.\n\
         Run: scripts/install-zookeeper",
        java.display()
    );
    java
}
