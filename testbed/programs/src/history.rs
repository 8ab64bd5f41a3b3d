//! The history: what happened when, one line for each event. The checker says what the words mean.

use std::fmt::{self, Display};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

/// A file to which one process appends.
#[derive(Debug)]
pub struct History(File);

impl History {
    pub fn open(path: &Path) -> io::Result<History> {
        let options = OpenOptions::new().create(true).append(true).clone();
        options.open(path).map(History)
    }

    /// Writes a line with the time at which this is called. It is one write(2) and no buffer of
    /// ours, so what has been noted stays noted however the process ends.
    pub fn note(&self, who: impl Display, event: fmt::Arguments<'_>) {
        let line = format!("{} {who} {event}\n", now());
        (&self.0)
            .write_all(line.as_bytes())
            .expect("there is room for the history");
    }
}

/// Nanoseconds on the clock that all processes of this machine share and nobody sets.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let [seconds, nanos] = [time.tv_sec, time.tv_nsec]
        .map(|part| u64::try_from(part).expect("this clock counts from the start of the machine"));
    seconds * 1_000_000_000 + nanos
}
