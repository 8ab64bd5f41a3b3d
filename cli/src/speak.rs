//! What the user hears on standard error.
//!
//! Who supervises a command must never wait for a reader: a pipe may be full, and Ctrl-S holds a
//! terminal. So while a command is supervised, lines go through a queue to a thread that does
//! nothing but write them. What finds the queue full is dropped, and counted.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::words;

/// Lines that wait for a reader.
const WAITING: usize = 1024;
/// After this a person wonders what is going on.
const LONG: Duration = Duration::from_secs(2);
/// For the last lines to be taken.
const LAST_WORDS: Duration = Duration::from_secs(1);

static SPEAKER: OnceLock<Speaker> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);

struct Speaker(Sender<Line>);

enum Line {
    Text(Vec<u8>),
    /// Answered when all before it has been written.
    Mark(Sender<()>),
}

/// From now on nobody waits for a reader.
pub(crate) fn aside() -> io::Result<()> {
    let (speaker, lines) = bounded(WAITING);
    let thread = thread::Builder::new().name("speaker".to_owned());
    thread.spawn(move || write_all(&lines))?;
    let _ = SPEAKER.set(Speaker(speaker));
    Ok(())
}

fn write_all(lines: &Receiver<Line>) {
    for line in lines {
        let mut err = io::stderr().lock();
        let dropped = DROPPED.swap(0, Ordering::Relaxed);
        // Nobody may be there to read it, which is no trouble of ours.
        if dropped > 0 {
            let _ = writeln!(
                err,
                "zklock: {dropped} lines were dropped; nobody read them"
            );
        }
        match line {
            Line::Text(text) => drop(err.write_all(&text)),
            Line::Mark(reached) => drop(reached.send(())),
        }
    }
}

/// Tells the user something.
pub(crate) fn say(what: fmt::Arguments<'_>) {
    write(format!("zklock: {what}\n").into_bytes());
}

fn write(text: Vec<u8>) {
    match SPEAKER.get() {
        None => drop(io::stderr().lock().write_all(&text)),
        Some(Speaker(lines)) => {
            if lines.try_send(Line::Text(text)).is_err() {
                DROPPED.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Says something to a person at a terminal if it takes long until the value is dropped. Programs and
/// logs hear how it ended, and no more.
#[must_use = "it is silent when it is dropped"]
pub(crate) struct IfLong {
    _until_dropped: Option<Sender<()>>,
}

pub(crate) fn if_long(what: String) -> IfLong {
    let (until_dropped, dropped) = bounded(0);
    let thread = thread::Builder::new().name("if-long".to_owned());
    // Who cannot have a thread waits in silence.
    let told = io::stderr().is_terminal()
        && thread
            .spawn(move || {
                if dropped.recv_timeout(LONG) == Err(RecvTimeoutError::Timeout) {
                    say(format_args!("{what}"));
                }
            })
            .is_ok();
    IfLong {
        _until_dropped: told.then_some(until_dropped),
    }
}

/// Waits until what was said is written, but not for long.
pub(crate) fn finish() {
    if let Some(Speaker(lines)) = SPEAKER.get() {
        let (reached, mark) = bounded(1);
        let end = Instant::now() + LAST_WORDS;
        if lines.send_deadline(Line::Mark(reached), end).is_ok() {
            let _ = mark.recv_deadline(end);
        }
    }
}

/// Where the log goes.
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The logger writes a line at a time.
        let line = String::from_utf8_lossy(bytes);
        write(words::of_the_command(&line).into_owned().into_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
