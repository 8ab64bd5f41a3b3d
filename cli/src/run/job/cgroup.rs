//! A control group for the job, where one can be made: whatever is in it can be killed by one write.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
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
    /// Makes one named after this process.
    pub(crate) fn make() -> io::Result<Self> {
        let ours = fs::read_to_string("/proc/self/cgroup")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let parent = find(&ours, &mounts).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "no control groups of version 2")
        })?;
        sweep(&parent);
        let folder = parent.join(name_for(std::process::id()));
        // Left by a process of the same number, and empty, or it could not be removed.
        let _ = fs::remove_dir(&folder);
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

fn name_for(pid: u32) -> String {
    format!("{PREFIX}{pid}")
}

/// Removes what runs have left that were killed with all their watchdogs. Only empty groups can be
/// removed, and only those whose maker has ended are looked at: another may be about to fill its own.
fn sweep(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten();
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if let Some(maker) = maker.and_then(|maker| maker.parse::<u32>().ok())
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

    #[test]
    fn a_mount_may_show_a_part_only() {
        let mounts = "41 31 0:38 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
        let found = find("0::/docker/1/x\n", mounts);
        assert_eq!(found, Some("/sys/fs/cgroup/x".into()));
        assert_eq!(find("0::/elsewhere\n", mounts), None);
    }
}
