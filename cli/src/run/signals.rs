//! The signals that are sent to us.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};
use nix::sys::signal::{SigSet, Signal, raise};
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
};
use zklock::CancelToken;

/// What ends a wait, and is passed on to a command.
pub(crate) const FORWARDED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// Blocked in every thread, so that a terminal stops neither us nor the watchdog.
const OF_TERMINALS: [i32; 2] = [SIGTTIN, SIGTTOU];

/// What we block beside [`FORWARDED`] and [`OF_TERMINALS`], to read it.
const OF_CHANGES: [i32; 3] = [SIGCHLD, SIGCONT, SIGTSTP];

/// Which of the signals that we block our caller has had blocked. The command gets it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mask(u64);

impl Mask {
    fn of_this_thread() -> io::Result<Self> {
        let now = SigSet::thread_get_mask()?;
        Ok(Self(bits(ours().filter(|signal| {
            named(*signal).is_some_and(|signal| now.contains(signal))
        }))))
    }

    pub(crate) fn text(self) -> String {
        format!("{:x}", self.0)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        u64::from_str_radix(text, 16).ok().map(Self)
    }

    /// Unblocks what we have blocked.
    pub(crate) fn restore(self) -> io::Result<()> {
        let blocked = ours().filter(|signal| !is_in(self.0, *signal));
        set_of(blocked).thread_unblock().map_err(io::Error::from)
    }
}

/// One that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) signal: i32,
    /// The process that sent it, where the system tells.
    pub(crate) sender: Option<u32>,
}

/// What came, in order.
pub(crate) struct Inbox {
    /// Of [`FORWARDED`]; a wait that uses [`Inbox::stop`] is over when one is here.
    pub(crate) forwarded: Receiver<Sent>,
    /// A child changed its state.
    pub(crate) children: Receiver<()>,
    /// We were continued.
    pub(crate) resumed: Receiver<()>,
    /// The key that stops (Ctrl-Z), while a command runs.
    pub(crate) stop_key: Receiver<()>,
    stop: Arc<Mutex<CancelToken>>,
    /// Those of [`FORWARDED`] that have come since the beginning.
    heard: Arc<AtomicU64>,
    /// As our caller has had it.
    pub(crate) mask: Mask,
    has_command: Arc<AtomicBool>,
}

/// Where each goes.
struct Sorter {
    forwarded: Sender<Sent>,
    children: Sender<()>,
    resumed: Sender<()>,
    stop_key: Sender<()>,
    stop: Arc<Mutex<CancelToken>>,
    heard: Arc<AtomicU64>,
    has_command: Arc<AtomicBool>,
}

impl Inbox {
    /// Catches signals from now on; to be called before there is another thread. What our caller has
    /// had ignored (`nohup`, or a shell without job control for what it runs in the background)
    /// stays ignored, here and in the command.
    pub(crate) fn open() -> io::Result<Self> {
        let mask = Mask::of_this_thread()?;
        // Whoever ignores it has its children buried by the kernel, and never hears how they ended.
        signal_hook::flag::register(SIGCHLD, Arc::default())?;
        let (to_forwarded, forwarded) = unbounded();
        let (to_children, children) = unbounded();
        let (to_resumed, resumed) = unbounded();
        let (to_stop_key, stop_key) = unbounded();
        let stop = Arc::new(Mutex::new(CancelToken::new()));
        let heard = Arc::default();
        let has_command = Arc::default();
        let sorter = Sorter {
            forwarded: to_forwarded,
            children: to_children,
            resumed: to_resumed,
            stop_key: to_stop_key,
            stop: Arc::clone(&stop),
            heard: Arc::clone(&heard),
            has_command: Arc::clone(&has_command),
        };
        listen(sorter)?;
        Ok(Self {
            forwarded,
            children,
            resumed,
            stop_key,
            stop,
            heard,
            mask,
            has_command,
        })
    }

    /// For one wait, which ends at the next signal of [`FORWARDED`], or at one that is here already.
    pub(crate) fn stop(&self) -> CancelToken {
        let token = CancelToken::new();
        self.stop
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(&token);
        if !self.forwarded.is_empty() {
            token.cancel();
        }
        token
    }

    /// Whether somebody has told us to end, since the beginning.
    pub(crate) fn is_ending(&self) -> bool {
        [SIGHUP, SIGINT, SIGQUIT, SIGTERM]
            .into_iter()
            .any(|signal| self.has_heard(signal))
    }

    /// Whether this has come to us since the beginning.
    pub(crate) fn has_heard(&self, signal: i32) -> bool {
        is_in(self.heard.load(Ordering::SeqCst), signal)
    }

    /// While a command runs Ctrl-Z is told; else it stops us.
    pub(crate) fn command_runs(&self, runs: bool) {
        // What was meant for the last command is not for the next.
        while self.stop_key.try_recv().is_ok() {}
        self.has_command.store(runs, Ordering::SeqCst);
    }
}

#[cfg(target_os = "linux")]
fn listen(sorter: Sorter) -> io::Result<()> {
    use nix::errno::Errno;
    use nix::sys::signalfd::{SfdFlags, SignalFd};

    let signals = SignalFd::with_flags(&block_all()?, SfdFlags::SFD_CLOEXEC)?;
    let thread = thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || {
        loop {
            match signals.read_signal() {
                Ok(Some(read)) => sorter.sort(Sent {
                    signal: i32::try_from(read.ssi_signo).unwrap_or_default(),
                    sender: Some(read.ssi_pid),
                }),
                Ok(None) | Err(Errno::EINTR) => {}
                Err(_) => return,
            }
        }
    })?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn listen(sorter: Sorter) -> io::Result<()> {
    set_of(OF_TERMINALS.into_iter()).thread_block()?;
    let ignored = ignored();
    let mut caught = vec![SIGCHLD, SIGCONT];
    caught.extend(FORWARDED.iter().filter(|signal| !is_in(ignored, **signal)));
    let mut signals = signal_hook::iterator::Signals::new(caught)?;
    let thread = thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || {
        for signal in signals.forever() {
            sorter.sort(Sent {
                signal,
                sender: None,
            });
        }
    })?;
    Ok(())
}

impl Sorter {
    fn sort(&self, sent: Sent) {
        // Nobody listens any more only at the end of the process.
        let _ = match sent.signal {
            SIGCHLD => self.children.send(()).is_ok(),
            SIGCONT => self.resumed.send(()).is_ok(),
            SIGTSTP => self.stop_key(sent.sender),
            _ => {
                // First, so that who finds the wait ended finds out why.
                self.heard
                    .fetch_or(bits([sent.signal].into_iter()), Ordering::SeqCst);
                let passed = self.forwarded.send(sent).is_ok();
                let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
                let stop = stop.clone();
                stop.cancel();
                passed
            }
        };
    }

    fn stop_key(&self, sender: Option<u32>) -> bool {
        // What we sent to our own group, which stops it when the command has stopped.
        if sender == Some(std::process::id()) {
            return true;
        }
        if self.has_command.load(Ordering::SeqCst) {
            return self.stop_key.send(()).is_ok();
        }
        // As the kernel would: nothing where nobody could continue us.
        if super::terminal::Terminal::open().has_job_control() {
            let _ = raise(Signal::SIGSTOP);
        }
        true
    }
}

/// Blocks what we read by a descriptor, and what nobody shall be stopped by; returns what is to be
/// read. What is ignored is left alone.
#[cfg(target_os = "linux")]
pub(crate) fn block_all() -> io::Result<SigSet> {
    let ignored = ignored();
    let heard = FORWARDED.into_iter().chain([SIGTSTP]);
    let heard = heard.filter(|signal| !is_in(ignored, *signal));
    let heard = set_of(heard.chain([SIGCHLD, SIGCONT]));
    heard.thread_block()?;
    set_of(OF_TERMINALS.into_iter()).thread_block()?;
    Ok(heard)
}

/// Ends this process by a signal, as the command was ended by it; with `group`, all of our process
/// group, as the key would have done that the terminal gave to the command alone. Returns where the
/// system does not let it: as the first process of a container.
pub(crate) fn die_by(signal: i32, group: bool) {
    // The command has left a dump if it wanted one.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    if group && let Some(signal) = rustix::process::Signal::from_named_raw(signal) {
        let _ = rustix::process::kill_current_process_group(signal);
    }
    if std::process::id() != 1 {
        // Also if it is ignored: PIPE is, in every program of Rust.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
}

/// The set of ignored signals, as the kernel shows it; nothing where it does not.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}

fn ours() -> impl Iterator<Item = i32> {
    FORWARDED.into_iter().chain(OF_CHANGES).chain(OF_TERMINALS)
}

fn named(signal: i32) -> Option<Signal> {
    Signal::try_from(signal).ok()
}

fn set_of(signals: impl Iterator<Item = i32>) -> SigSet {
    signals.filter_map(named).collect()
}

fn bits(signals: impl Iterator<Item = i32>) -> u64 {
    signals.fold(0, |all, signal| all | 1 << (signal - 1))
}

fn is_in(mask: u64, signal: i32) -> bool {
    mask >> (signal - 1) & 1 == 1
}
