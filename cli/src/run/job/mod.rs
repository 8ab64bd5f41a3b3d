//! The job: the command and all its descendants, as the supervisor sees them.
//!
//! `docs/command-design.md` says which processes there are and who kills whom.

#[cfg(target_os = "linux")]
mod cgroup;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod guarded;
mod parcel;
pub(crate) mod shim;
#[cfg(target_os = "linux")]
mod walk;
#[cfg(target_os = "linux")]
pub(crate) mod watchdog;
#[cfg(target_os = "linux")]
mod wire;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;

#[cfg(not(target_os = "linux"))]
pub(crate) use self::elsewhere::Job;
#[cfg(target_os = "linux")]
pub(crate) use self::guarded::Job;
pub(crate) use self::parcel::receive;
use super::signals::Mask;
use super::supervisor::Ending;

/// What a job is started with.
#[cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "there is no control group")
)]
pub(crate) struct Start<'a> {
    pub(crate) command: &'a [OsString],
    /// What the command finds in its environment, or does not.
    pub(crate) variables: &'a [(&'a str, Option<String>)],
    /// The signals that the command has blocked.
    pub(crate) mask: Mask,
    /// Whether to make a control group, if one can be made.
    pub(crate) cgroup: bool,
}

impl Start<'_> {
    fn set_variables(&self, command: &mut Command) {
        for (name, value) in self.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }
}

/// What became of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "there is no watchdog")
)]
pub(crate) enum Event {
    /// The command could not be run; the number of the error.
    Failed(i32),
    /// The command itself ended; others of the job may live.
    Ended(Ending),
    Stopped(i32),
    Continued,
    /// Nobody of the job is left.
    Emptied,
    /// The watchdog has killed the job, as it was not told in time that the lock is ours.
    Late,
    /// This may not be sent to the command.
    Refused(i32),
    /// The watchdog was sent this signal by that process.
    Heard {
        signal: i32,
        sender: u32,
    },
    /// The watchdog has died.
    Unguarded,
}

/// The running program itself, also when its file has been replaced meanwhile.
fn our_program() -> io::Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() {
        return Ok(running);
    }
    // Without /proc: as the kernel was told it.
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::ffi::OsStrExt;
        let told = rustix::param::linux_execfn().to_bytes();
        if !told.is_empty() {
            return std::path::absolute(std::ffi::OsStr::from_bytes(told));
        }
    }
    std::env::current_exe()
}
