//! Servers of PostgreSQL and Redis: one of each for all tests, which use documents of their own.
//!
//! They listen on a free port of the loopback interface, ask for a password, keep everything in a temporary folder, and
//! end with the test's process, however that ends.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use postgres::{Client, Config, NoTls};
use testbed::ports::Port;
use testbed::{Guardian, wait_until};

/// A start takes a second or two on an idle machine; test machines are seldom idle.
const START: Duration = Duration::from_secs(60);

/// A server, and how to reach it.
struct Running {
    address: String,
    // Ends when the tests' process does: nothing drops a static.
    _guardian: Guardian,
    _port: Port,
}

/// How to reach PostgreSQL, in the form that its driver reads.
pub(crate) fn postgresql() -> &'static str {
    static SERVER: LazyLock<Running> = LazyLock::new(start_postgresql);
    &SERVER.address
}

/// How to reach Redis, as a URL.
pub(crate) fn redis() -> &'static str {
    static SERVER: LazyLock<Running> = LazyLock::new(start_redis);
    &SERVER.address
}

/// A new database in PostgreSQL, as tables have one name for all.
pub(crate) fn new_database() -> String {
    let name = format!("test_{}", secret());
    let mut client = Client::connect(postgresql(), NoTls).expect("it serves");
    client
        .batch_execute(&format!("CREATE DATABASE {name}"))
        .expect("a free name");
    format!("{} dbname={name}", postgresql())
}

fn start_postgresql() -> Running {
    let programs = postgresql_programs();
    let home = home();
    let data = home.join("data");
    let password = secret();
    let password_file = home.join("password");
    fs::write(&password_file, &password).expect("the server's folder is ours");
    let user = other_user();
    if let Some(user) = &user {
        for path in [&home, &password_file] {
            chown(path, Some(user.uid), Some(user.gid)).expect("we are root");
        }
    }
    let mut initdb: Vec<OsString> = vec![programs.join("initdb").into()];
    initdb.extend(["--no-sync", "--no-locale", "--encoding=UTF8"].map(Into::into));
    initdb.extend(["--username=tests", "--auth=scram-sha-256"].map(Into::into));
    initdb.extend(["--pwfile".into(), password_file.into()]);
    initdb.extend(["--pgdata".into(), data.clone().into()]);
    let initdb = as_user(user.as_ref(), initdb);
    let made = Command::new(&initdb[0])
        .args(&initdb[1..])
        .current_dir("/")
        .output()
        .expect("it can be started");
    assert!(made.status.success(), "initdb failed: {made:?}");

    let port = Port::claim();
    let mut server: Vec<OsString> = vec![programs.join("postgres").into()];
    server.extend(["-D".into(), data.into(), "-p".into()]);
    server.push(port.number().to_string().into());
    server.extend(["-c", "listen_addresses=127.0.0.1"].map(Into::into));
    server.extend(["-c", "unix_socket_directories="].map(Into::into));
    server.extend(["-c", "fsync=off"].map(Into::into));
    // So it leaves no piece of shared memory behind.
    let mut guardian = Guardian::with_signal(&home, "QUIT", &as_user(user.as_ref(), server));
    guardian.start();
    let address = format!(
        "host=127.0.0.1 port={} user=tests password={password}",
        port.number()
    );
    let config: Config = format!("{address} dbname=postgres")
        .parse()
        .expect("well-formed");
    wait_until("PostgreSQL serves", START, || {
        config.connect(NoTls).is_ok() || ended(&guardian, &home)
    });
    Running {
        address: format!("{address} dbname=postgres"),
        _guardian: guardian,
        _port: port,
    }
}

fn start_redis() -> Running {
    let home = home();
    let port = Port::claim();
    let password = secret();
    let mut settings = String::new();
    for (name, value) in [
        ("bind", "127.0.0.1"),
        ("port", &port.number().to_string()),
        ("requirepass", &password),
        ("dir", &home.to_string_lossy()),
        ("save", "\"\""),
    ] {
        writeln!(settings, "{name} {value}").expect("a String takes it");
    }
    let file = home.join("redis.conf");
    fs::write(&file, settings).expect("the server's folder is ours");
    let mut guardian = Guardian::over(&home, &["redis-server".into(), file.into()]);
    guardian.start();
    let address = format!("redis://:{password}@127.0.0.1:{}/", port.number());
    let client = ::redis::Client::open(address.as_str()).expect("well-formed");
    wait_until("Redis serves (scripts/install-redis)", START, || {
        client.get_connection().is_ok() || ended(&guardian, &home)
    });
    Running {
        address,
        _guardian: guardian,
        _port: port,
    }
}

/// # Panics
/// If the server has ended, with what it has said.
fn ended(guardian: &Guardian, home: &Path) -> bool {
    let lives = guardian.server().is_some_and(testbed::process::is_alive);
    if !lives {
        let log = fs::read_to_string(home.join("server.log")).unwrap_or_default();
        panic!("the server has ended:\n{log}");
    }
    false
}

/// The newest that the system has.
fn postgresql_programs() -> PathBuf {
    let has_server = |folder: &PathBuf| folder.join("postgres").exists();
    let version = |folder: &PathBuf| -> u32 {
        let version = folder.parent().and_then(Path::file_name);
        version
            .and_then(|version| version.to_str()?.parse().ok())
            .unwrap_or(0)
    };
    if let Some(folder) = env::var_os("POSTGRESQL_BIN") {
        return folder.into();
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let installed = versions
        .flatten()
        .map(|version| version.path().join("bin"))
        .filter(has_server)
        .max_by_key(version);
    let path = env::var_os("PATH").unwrap_or_default();
    installed
        .or_else(|| env::split_paths(&path).find(has_server))
        .expect("there is no PostgreSQL; run scripts/install-postgresql")
}

/// A user of the system.
struct User {
    name: String,
    uid: u32,
    gid: u32,
}

/// Whom PostgreSQL is run as, if we are root: it refuses to be.
fn other_user() -> Option<User> {
    let we = fs::metadata("/proc/self").expect("/proc is mounted").uid();
    if we != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("a system has users");
    let named = |wanted: &str| {
        users.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, uid, gid, ..] = fields.as_slice() else {
                return None;
            };
            (*name == wanted).then(|| User {
                name: wanted.to_owned(),
                uid: uid.parse().expect("a number"),
                gid: gid.parse().expect("a number"),
            })
        })
    };
    let found = named("postgres").or_else(|| named("nobody"));
    Some(found.expect("there is a user that is not root"))
}

fn as_user(user: Option<&User>, command: Vec<OsString>) -> Vec<OsString> {
    let Some(user) = user else {
        return command;
    };
    let mut whole: Vec<OsString> = vec!["setpriv".into()];
    whole.push(format!("--reuid={}", user.name).into());
    whole.push(format!("--regid={}", user.gid).into());
    whole.extend(["--clear-groups".into(), "--".into()]);
    whole.extend(command);
    whole
}

/// A folder that its guardian removes.
fn home() -> PathBuf {
    let home = tempfile::Builder::new().prefix("zklock-store-").tempdir();
    home.expect("a temporary folder can be made").keep()
}

/// What others on this machine do not guess.
fn secret() -> String {
    let random = RandomState::new();
    format!("{:016x}{:016x}", random.hash_one(0), random.hash_one(1))
}
