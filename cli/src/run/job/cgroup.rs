//! A control group for the job, where one can be made: whatever is in it can be killed by one write.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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

/// The process that made a group of this name, if it is of this namespace.
fn maker_of(name: &str, namespace: u64) -> Option<u32> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let theirs: u64 = parts.next()?.parse().ok()?;
    let pid = parts.next()?.parse().ok()?;
    (theirs == namespace).then_some(pid)
}

/// No secret; another for each run.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Removes what runs have left that were killed with all their watchdogs. Only empty groups can be
/// removed, and only those whose maker has ended are looked at: another may be about to fill its own.
fn sweep(parent: &Path, namespace: u64) {
    let entries = fs::read_dir(parent).into_iter().flatten();
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| maker_of(name, namespace));
        if let Some(maker) = maker
            && !Path::new(&format!("/proc/{maker}")).exists()
        {
            remove_with_those_below(&entry.path());
        }
    }
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
        assert_eq!(maker_of(&name, 4_026_531_836), Some(7));
        assert_eq!(maker_of(&name, 4_026_531_837), None);
        assert_eq!(maker_of("zklock-7", 4_026_531_836), None);
        assert_ne!(name, name_for(4_026_531_837, 7, 1));
        assert_ne!(name, name_for(4_026_531_836, 7, 2));
        assert_ne!(random(), random());
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
