//! Signals to a process by its id, and what this process uses (for leak
//! tests). Linux only: the readings come from `/proc`.

use std::env;
use std::fs;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::wait_until;

const STATE_CHANGE: Duration = Duration::from_secs(10);

/// This test program once more, to run one test of it alone, in a process of its own. `module` is the
/// `module_path!()` of the test.
///
/// # Panics
/// If there is no such test: a test program that runs nothing succeeds.
pub fn test_alone(module: &str, test: &str) -> Command {
    let program = env::current_exe().expect("a test knows its program");
    // The first name is the crate's.
    let name = match module.split_once("::") {
        Some((_, module)) => format!("{module}::{test}"),
        None => test.to_owned(),
    };
    let listed = Command::new(&program)
        .args(["--list", "--exact", &name])
        .output()
        .expect("the test's program can be started");
    let listed = String::from_utf8_lossy(&listed.stdout);
    assert!(listed.contains(&format!("{name}: test")), "no test {name}");
    let mut command = Command::new(program);
    command.args(["--exact", &name, "--nocapture"]);
    command
}

/// Freezes a process (SIGSTOP) and returns when each of its threads stands.
pub fn stop(pid: u32) {
    signal(pid, Signal::STOP);
    // The signal is only sent, not yet acted on, when kill(2) returns: without
    // the wait a "frozen" server could still answer the next request.
    wait_until("every thread is stopped", STATE_CHANGE, || {
        thread_states(pid).iter().all(|state| *state == 'T')
    });
}

/// Waits until a process has acted on a signal that stops it, and somebody else has let it go on.
pub fn wait_until_continued(pid: u32, stopped_by: Signal) {
    let pending = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let masks = status.lines().filter_map(|line| {
            line.strip_prefix("ShdPnd:")
                .or(line.strip_prefix("SigPnd:"))
        });
        masks
            .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .any(|mask| mask >> (stopped_by.as_raw() - 1) & 1 == 1)
    };
    // In this order: what is no longer pending has stopped the process, or had done so before.
    wait_until("it goes on", STATE_CHANGE, || {
        !pending() && thread_states(pid).iter().all(|state| *state != 'T')
    });
}

/// Lets a frozen process go on (SIGCONT).
pub fn cont(pid: u32) {
    signal(pid, Signal::CONT);
}

/// Kills a process (SIGKILL). Whoever started it still has to reap it.
pub fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

/// Whether a process runs (or is frozen), as opposed to gone or unreaped. One whose main thread alone
/// has ended has the state of an unreaped one, and more than one thread.
pub fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let mut fields = after_name(&stat).split_ascii_whitespace();
    let has_ended = matches!(fields.next(), Some("Z" | "X"));
    // The 20th of all, where the state is the third.
    let threads = fields.nth(16).and_then(|threads| threads.parse().ok());
    !has_ended || threads.unwrap_or(0) > 1
}

/// Whether a process is frozen.
pub fn is_stopped(pid: u32) -> bool {
    state_in(&format!("/proc/{pid}/stat")) == Some('T')
}

/// How many threads of this process have a name that begins with `prefix`.
/// The kernel keeps 15 bytes of a name, so only these are compared.
pub fn threads_named(prefix: &str) -> usize {
    let prefix = prefix.get(..15).unwrap_or(prefix);
    thread_names()
        .iter()
        .filter(|name| name.starts_with(prefix))
        .count()
}

/// The names of all threads of this process, as the kernel keeps them.
pub fn thread_names() -> Vec<String> {
    thread_names_of("self")
}

/// The names of all threads of this process or another.
pub fn thread_names_of(process: &str) -> Vec<String> {
    // A thread may end between the listing and the reading.
    entries(&format!("/proc/{process}/task"))
        .filter_map(|task| fs::read_to_string(format!("/proc/{process}/task/{task}/comm")).ok())
        .map(|name| name.trim_end().to_owned())
        .collect()
}

/// How often the threads that a process has now have gone to wait for something.
pub fn voluntary_switches(pid: u32) -> u64 {
    let of = |task: String| -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{pid}/task/{task}/status")).ok()?;
        let line = |line| str::strip_prefix(line, "voluntary_ctxt_switches:");
        status.lines().find_map(line)?.trim().parse().ok()
    };
    entries(&format!("/proc/{pid}/task")).filter_map(of).sum()
}

/// How many threads this process has.
pub fn threads() -> usize {
    entries("/proc/self/task").count()
}

/// How many file descriptors this process has open.
pub fn descriptors() -> usize {
    // One less: reading the folder takes a descriptor itself.
    entries("/proc/self/fd").count() - 1
}

/// How much memory of this process is resident, in bytes.
pub fn resident_bytes() -> u64 {
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
pub fn cpu_time() -> Duration {
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
    after_name(&stat).trim_start().chars().next()
}

/// The name stands in brackets and may hold any character.
fn after_name(stat: &str) -> &str {
    stat.rsplit_once(')').map_or("", |(_, after)| after)
}

fn entries(folder: &str) -> impl Iterator<Item = String> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
}
