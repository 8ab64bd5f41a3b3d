//! Signals to a process by its id, and what this process uses (for leak
//! tests). Linux only: the readings come from `/proc`.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::wait_until;

const STATE_CHANGE: Duration = Duration::from_secs(10);

/// Freezes a process (SIGSTOP) and returns when each of its threads stands.
pub(crate) fn stop(pid: u32) {
    signal(pid, Signal::STOP);
    // The signal is only sent, not yet acted on, when kill(2) returns: without
    // the wait a "frozen" server could still answer the next request.
    wait_until("every thread is stopped", STATE_CHANGE, || {
        thread_states(pid).iter().all(|state| *state == 'T')
    });
}

/// Lets a frozen process go on (SIGCONT).
pub(crate) fn cont(pid: u32) {
    signal(pid, Signal::CONT);
}

/// Kills a process (SIGKILL). Whoever started it still has to reap it.
pub(crate) fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

/// Whether a process runs (or is frozen), as opposed to gone or unreaped.
pub(crate) fn is_alive(pid: u32) -> bool {
    state_in(&format!("/proc/{pid}/stat")).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Whether a process is frozen.
pub(crate) fn is_stopped(pid: u32) -> bool {
    state_in(&format!("/proc/{pid}/stat")) == Some('T')
}

/// How many threads of this process have a name that begins with `prefix`.
/// The kernel keeps 15 bytes of a name, so only these are compared.
pub(crate) fn threads_named(prefix: &str) -> usize {
    let prefix = prefix.get(..15).unwrap_or(prefix);
    thread_names()
        .iter()
        .filter(|name| name.starts_with(prefix))
        .count()
}

/// The names of all threads of this process, as the kernel keeps them.
pub(crate) fn thread_names() -> Vec<String> {
    thread_names_of("self")
}

/// The names of all threads of this process or another.
pub(crate) fn thread_names_of(process: &str) -> Vec<String> {
    // A thread may end between the listing and the reading.
    entries(&format!("/proc/{process}/task"))
        .filter_map(|task| fs::read_to_string(format!("/proc/{process}/task/{task}/comm")).ok())
        .map(|name| name.trim_end().to_owned())
        .collect()
}

/// How often the threads that a process has now have gone to wait for something.
pub(crate) fn voluntary_switches(pid: u32) -> u64 {
    let of = |task: String| -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{pid}/task/{task}/status")).ok()?;
        let line = |line| str::strip_prefix(line, "voluntary_ctxt_switches:");
        status.lines().find_map(line)?.trim().parse().ok()
    };
    entries(&format!("/proc/{pid}/task")).filter_map(of).sum()
}

/// How many threads this process has.
pub(crate) fn threads() -> usize {
    entries("/proc/self/task").count()
}

/// How many file descriptors this process has open.
pub(crate) fn descriptors() -> usize {
    // One less: reading the folder takes a descriptor itself.
    entries("/proc/self/fd").count() - 1
}

/// How much memory of this process is resident, in bytes.
pub(crate) fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let kib: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|number| number.trim().parse().ok())
        .expect("VmRSS is a number of kB");
    kib * 1024
}

/// The processor time this process has used so far, user and system, threads
/// that have ended included.
pub(crate) fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("processor time is never negative")
}

#[track_caller]
fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .expect("a process id is a positive i32");
    kill_process(pid, signal)
        .unwrap_or_else(|error| panic!("cannot signal process {pid:?}: {error}"));
}

fn thread_states(pid: u32) -> Vec<char> {
    entries(&format!("/proc/{pid}/task"))
        .filter_map(|task| state_in(&format!("/proc/{pid}/task/{task}/stat")))
        .collect()
}

fn state_in(stat: &str) -> Option<char> {
    let stat = fs::read_to_string(stat).ok()?;
    // The name before the state stands in brackets and may hold any character.
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.trim_start().chars().next()
}

fn entries(folder: &str) -> impl Iterator<Item = String> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
}
