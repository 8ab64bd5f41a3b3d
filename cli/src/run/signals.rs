//! The signals that are sent to us.

use std::fs;
use std::io;
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};
use nix::sys::signal::{SigSet, Signal};
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use zklock::CancelToken;

/// What ends a wait, and is passed on to a command.
const FORWARDED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// What came, in order.
pub(crate) struct Inbox {
    /// Of [`FORWARDED`]; a wait that uses `stop` is over when one is here.
    pub(crate) forwarded: Receiver<i32>,
    /// A child changed its state.
    pub(crate) children: Receiver<()>,
    /// We were continued.
    pub(crate) resumed: Receiver<()>,
    pub(crate) stop: CancelToken,
}

impl Inbox {
    /// Catches signals from now on. What our caller has had ignored (`nohup`, or a shell without job
    /// control for what it runs in the background) stays ignored, here and in the command.
    pub(crate) fn open() -> io::Result<Self> {
        let ignored = ignored();
        let mut caught = vec![SIGCHLD, SIGCONT];
        caught.extend(FORWARDED.iter().filter(|signal| !is_in(ignored, **signal)));
        let signals = Signals::new(caught)?;
        let (to_forwarded, forwarded) = unbounded();
        let (to_children, children) = unbounded();
        let (to_resumed, resumed) = unbounded();
        let stop = CancelToken::new();
        let cancel = stop.clone();
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || sort(signals, &to_forwarded, &to_children, &to_resumed, &cancel))?;
        Ok(Self {
            forwarded,
            children,
            resumed,
            stop,
        })
    }
}

fn sort(
    mut signals: Signals,
    forwarded: &Sender<i32>,
    children: &Sender<()>,
    resumed: &Sender<()>,
    stop: &CancelToken,
) {
    for signal in signals.forever() {
        // Nobody listens any more only at the end of the process.
        let _ = match signal {
            SIGCHLD => children.send(()).is_ok(),
            SIGCONT => resumed.send(()).is_ok(),
            _ => {
                // First, so that who finds the wait ended finds out why.
                let sent = forwarded.send(signal).is_ok();
                stop.cancel();
                sent
            }
        };
    }
}

/// Lets this thread take the terminal back from the background without being stopped for it.
pub(crate) fn block_ttou() -> io::Result<()> {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGTTOU);
    mask.thread_block().map_err(io::Error::from)
}

/// The set of ignored signals, as the kernel shows it; nothing where it does not.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}

fn is_in(mask: u64, signal: i32) -> bool {
    mask >> (signal - 1) & 1 == 1
}
