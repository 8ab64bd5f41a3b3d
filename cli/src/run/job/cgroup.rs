//! A control group for the job, where one can be made: whatever is in it can be killed by one write.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A control group of version 2, below the one that we are in, so that its limits hold. It has no
/// controllers of its own.
#[derive(Debug)]
pub(crate) struct Cgroup {
    folder: PathBuf,
    /// Opened beforehand: killing opens nothing.
    kill: File,
}

impl Cgroup {
    /// Makes one named after this process, for one run.
    pub(crate) fn make() -> io::Result<Self> {
        let ours = fs::read_to_string("/proc/self/cgroup")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let parent = find(&ours, &mounts).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "no control groups of version 2")
        })?;
        let namespace = fs::metadata("/proc/self/ns/pid")?.ino();
        sweep(&parent, namespace);
        let folder = parent.join(name_for(namespace, std::process::id(), random()));
        fs::create_dir(&folder)?;
        Self::open(&folder).inspect_err(|_| {
            let _ = fs::remove_dir(&folder);
        })
    }

    /// One that was made already. An error on kernels before 5.14, which cannot kill it.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        Ok(Self {
            kill: OpenOptions::new()
                .write(true)
                .open(folder.join("cgroup.kill"))?,
            folder: folder.to_owned(),
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Puts a process in, and what it starts from now on.
    pub(crate) fn add(&self, pid: i32) -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .open(self.folder.join("cgroup.procs"));
        file?.write_all(pid.to_string().as_bytes())
    }

    /// Kills everybody in it, and in groups below it, at once.
    pub(crate) fn kill(&self) -> io::Result<()> {
        (&self.kill).write_all(b"1")
    }

    /// Removes it if nobody is in it any more.
    pub(crate) fn remove(&self) {
        remove_with_those_below(&self.folder);
    }
}

/// Nested runs make theirs in ours, and leave them when they are killed with the job. Only groups
/// that nobody is in can be removed.
fn remove_with_those_below(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten();
    for entry in entries.filter_map(Result::ok) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_with_those_below(&entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}

const PREFIX: &str = "zklock-";

/// Containers with PID namespaces of their own may have one parent group, and processes of the same
/// number: what one names after that alone, another takes for its own, and removes or kills.
fn name_for(namespace: u64, pid: u32, random: u64) -> String {
    format!("{PREFIX}{namespace}-{pid}-{random:016x}")
}

/// From its making to its first process, a group is empty for some milliseconds.
const SURELY_BEGUN: Duration = Duration::from_secs(24 * 60 * 60);

/// Who made a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    /// A process that we would see if it ran.
    Here(u32),
    /// One of another PID namespace, perhaps of one that has ended with all of its processes.
    Elsewhere,
}

impl Maker {
    /// The maker of a group of this name; none if it is no run's.
    fn of(name: &str, namespace: u64) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let theirs: u64 = parts.next()?.parse().ok()?;
        let pid = parts.next()?.parse().ok()?;
        parts.next()?;
        Some(if theirs == namespace {
            Self::Here(pid)
        } else {
            Self::Elsewhere
        })
    }

    /// Whether the maker has come so far that nobody is to be put into the group any more.
    fn is_done(
        self,
        runs: impl FnOnce(u32) -> bool,
        age: impl FnOnce() -> Option<Duration>,
    ) -> bool {
        match self {
            Self::Here(pid) => !runs(pid),
            Self::Elsewhere => age().is_some_and(|age| age > SURELY_BEGUN),
        }
    }
}

/// No secret; another for each run.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Removes what runs have left that were killed with all their watchdogs, also together with their PID
/// namespace. Only those are looked at whose maker has come so far: another may be about to fill its own. A run of whose group everybody has gone elsewhere does
/// without it.
fn sweep(parent: &Path, namespace: u64) {
    let entries = fs::read_dir(parent).into_iter().flatten();
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| Maker::of(name, namespace));
        let runs = |pid| Path::new(&format!("/proc/{pid}")).exists();
        // The kernel's time of a group is when it was first looked at, or later again.
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if maker.is_some_and(|maker| maker.is_done(runs, age)) && is_deserted(&entry.path()) {
            remove_with_those_below(&entry.path());
        }
    }
}

/// Whether nobody is in it, nor in a group below it. While somebody is, a nested run may be about to fill
/// a group of its own there.
fn is_deserted(folder: &Path) -> bool {
    let events = fs::read_to_string(folder.join("cgroup.events"));
    events.is_ok_and(|events| events.lines().any(|line| line == "populated 0"))
}

/// The folder of our own group, by what `/proc` says of us and of the mounts.
fn find(ours: &str, mounts: &str) -> Option<PathBuf> {
    let path = ours.lines().find_map(|line| line.strip_prefix("0::"))?;
    // Outside of what our namespace shows.
    if path.contains("/..") {
        return None;
    }
    mounts.lines().find_map(|line| {
        let (front, after) = line.split_once(" - ")?;
        if after.split(' ').next()? != "cgroup2" {
            return None;
        }
        let mut fields = front.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        // A mount shows a part of the tree; ours must be in it.
        let below = match root {
            "/" => path,
            root => path.strip_prefix(root)?,
        };
        // Not one whose name only begins as the root's does.
        if !below.is_empty() && !below.starts_with('/') {
            return None;
        }
        Some(Path::new(point).join(below.trim_start_matches('/')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_group_is_found_by_its_mount() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let found = find("4:memory:/x\n0::/a.slice/b\n", mounts);
        assert_eq!(found, Some("/sys/fs/cgroup/unified/a.slice/b".into()));
        let found = find("0::/\n", mounts);
        assert_eq!(found, Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(find("0::/../b\n", mounts), None);
        assert_eq!(find("4:memory:/x\n", mounts), None);
    }

    /// Two containers with one parent group removed and killed each other's.
    #[test]
    fn groups_of_other_namespaces_and_runs_are_not_ours() {
        let name = name_for(4_026_531_836, 7, 1);
        assert_eq!(Maker::of(&name, 4_026_531_836), Some(Maker::Here(7)));
        assert_eq!(Maker::of(&name, 4_026_531_837), Some(Maker::Elsewhere));
        assert_eq!(Maker::of("zklock-7", 4_026_531_836), None);
        assert_eq!(Maker::of("zklock-7-7", 4_026_531_836), None);
        assert_ne!(name, name_for(4_026_531_837, 7, 1));
        assert_ne!(name, name_for(4_026_531_836, 7, 2));
        assert_ne!(random(), random());
    }

    /// Those of runs that were killed together with their PID namespace stayed for ever.
    #[test]
    fn what_a_namespace_has_left_is_removed_once_it_can_be_nobodys() {
        let ours = Maker::Here(7);
        let unasked = || unreachable!("not asked");
        assert!(ours.is_done(|_| false, unasked));
        assert!(!ours.is_done(|_| true, unasked));
        let old = |age| Maker::Elsewhere.is_done(|_| unreachable!("not seen"), || age);
        assert!(!old(None));
        assert!(!old(Some(SURELY_BEGUN)));
        assert!(old(Some(2 * SURELY_BEGUN)));
    }

    #[test]
    fn a_mount_may_show_a_part_only() {
        let mounts = "41 31 0:38 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
        let found = find("0::/docker/1/x\n", mounts);
        assert_eq!(found, Some("/sys/fs/cgroup/x".into()));
        assert_eq!(find("0::/elsewhere\n", mounts), None);
        assert_eq!(find("0::/docker/12/x\n", mounts), None);
        let found = find("0::/docker/1\n", mounts);
        assert_eq!(found, Some("/sys/fs/cgroup".into()));
    }
}
