//! A worker that leaves traces while it lives, and the places where a command can put it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixtures::{SOON, said, zklock};
use testbed::{wait_for_some, wait_until};

/// Ways out of the command's process group; `$W` is what then works.
pub(crate) const WAYS_OUT: [(&str, &str); 8] = [
    ("timeout", "timeout 1000 sh -c \"$W\" & wait"),
    ("set-m", "set -m; sh -c \"$W\" & wait"),
    ("setsid", "setsid -w sh -c \"$W\""),
    ("double-fork", "(setsid sh -c \"$W\" & ) ; sleep 1000"),
    (
        "script",
        "script -qec \"$W\" /dev/null </dev/null >/dev/null",
    ),
    ("nested", "$ZKLOCK run /job/nested-$$ -- sh -c \"$W\""),
    (
        "nested-out",
        "$ZKLOCK run /job/nested-$$ -- setsid -w timeout 1000 sh -c \"$W\"",
    ),
    ("main-thread-ended", "exec setsid -w python3 -c \"$THREAD\""),
];

/// Writes its process id and then ticks, and does not listen to TERM or HUP.
pub(crate) const WORK: &str =
    r#"trap '' TERM HUP; echo $$ >$PIDS; while sleep 0.01; do echo tick >>$TICKS; done"#;

/// The same by a thread that works when the main thread has ended: the kernel shows such a process as
/// one that has ended, and is not buried. (60 and 93 are `exit`, which ends one thread.)
const THREAD: &str = r#"
import ctypes, os, platform, signal, threading, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
ours = os.getpid()
def has_ended():
    stat = open("/proc/%d/task/%d/stat" % (ours, ours)).read()
    return stat.rsplit(")", 1)[1].split()[0] == "Z"
def work():
    while not has_ended():
        time.sleep(0.01)
    while True:
        with open(os.environ["TICKS"], "a") as ticks:
            ticks.write("tick\n")
        time.sleep(0.01)
with open(os.environ["PIDS"], "w") as pids:
    pids.write(str(ours))
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(60 if platform.machine() == "x86_64" else 93, 0)
"#;

/// A job whose worker leaves traces in a folder.
pub(crate) struct Traces {
    folder: tempfile::TempDir,
}

impl Traces {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a place for the traces");
        open_to_all(folder.path());
        Self { folder }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Tells a command where to leave them.
    pub(crate) fn told<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("W", WORK)
            .env("THREAD", THREAD)
            .env("ZKLOCK", env!("CARGO_BIN_EXE_zklock"))
            .env("PIDS", self.file("pid"))
            .env("TICKS", self.file("ticks"))
    }

    /// Waits until the worker works; returns its process id.
    #[track_caller]
    pub(crate) fn worker(&self) -> u32 {
        wait_until("it works", SOON, || self.ticks() > 0);
        let pid = fs::read_to_string(self.file("pid")).expect("written before");
        pid.trim().parse().expect("a process id")
    }

    /// Takes the lock, and sees that the worker does nothing from that moment on.
    #[track_caller]
    pub(crate) fn assert_over_before_the_next(&self, path: &str, way: &str) {
        let mut next = zklock(["run", path, "--", "sh", "-c", r#"wc -l <"$0""#]);
        let next = said(next.arg(self.file("ticks")));
        assert_eq!(next.status, 0, "{way}: {}", next.err);
        let seen: usize = next.out.trim().parse().expect("a number of lines");
        assert_eq!(self.ticks(), seen, "{way}: it worked beside the next");
    }

    pub(crate) fn ticks(&self) -> usize {
        fs::read_to_string(self.file("ticks")).map_or(0, |ticks| ticks.lines().count())
    }
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("it is ours");
}

/// With a control group where one can be made, and in any case without.
pub(crate) fn both_ways() -> [&'static [&'static str]; 2] {
    [&[], &["--no-cgroup"]]
}

/// The watchdog of a run; or, of `unshare`, the first process of its namespace.
pub(crate) fn watchdog_of(pid: u32) -> u32 {
    let children = format!("/proc/{pid}/task/{pid}/children");
    let found = wait_for_some(SOON, || {
        let children = fs::read_to_string(&children).ok()?;
        children.split_whitespace().next()?.parse().ok()
    });
    found.expect("a watchdog")
}
