//! The critical sections of all processes, merged, and what they prove.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the clock that all processes of a machine share and nobody can set.
pub(crate) fn now_ns() -> u64 {
    let time = Duration::try_from(clock_gettime(ClockId::Monotonic)).expect("never negative");
    u64::try_from(time.as_nanos()).expect("five centuries of uptime")
}

/// One critical section, as its thread saw it from inside.
#[derive(Clone, Copy)]
pub(crate) struct Section {
    pub(crate) process: u32,
    pub(crate) thread: u32,
    pub(crate) asked_ns: u64,
    pub(crate) entered_ns: u64,
    pub(crate) left_ns: u64,
}

const BYTES: usize = 32;

/// Writes the sections of one process.
pub(crate) fn write(path: &Path, sections: &[Section]) -> io::Result<()> {
    let mut out = io::BufWriter::new(fs::File::create(path)?);
    for section in sections {
        out.write_all(&section.process.to_le_bytes())?;
        out.write_all(&section.thread.to_le_bytes())?;
        out.write_all(&section.asked_ns.to_le_bytes())?;
        out.write_all(&section.entered_ns.to_le_bytes())?;
        out.write_all(&section.left_ns.to_le_bytes())?;
    }
    out.flush()
}

pub(crate) fn read(path: &Path) -> io::Result<Vec<Section>> {
    let bytes = fs::read(path)?;
    let (records, rest) = bytes.as_chunks::<BYTES>();
    if !rest.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(records.iter().map(parse).collect())
}

fn parse(record: &[u8; BYTES]) -> Section {
    let word = |at: usize| {
        let bytes = record[at..].first_chunk().expect("inside the record");
        u64::from_le_bytes(*bytes)
    };
    let half = |at: usize| {
        let bytes = record[at..].first_chunk().expect("inside the record");
        u32::from_le_bytes(*bytes)
    };
    Section {
        process: half(0),
        thread: half(4),
        asked_ns: word(8),
        entered_ns: word(16),
        left_ns: word(24),
    }
}

/// All sections in the order in which they were entered.
pub(crate) struct History(Vec<Section>);

impl History {
    pub(crate) fn new(mut sections: Vec<Section>) -> History {
        sections.sort_unstable_by_key(|section| section.entered_ns);
        History(sections)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The first two sections that were not one after the other.
    pub(crate) fn overlap(&self) -> Option<(Section, Section)> {
        let pairs = self.0.windows(2);
        pairs
            .map(|pair| (pair[0], pair[1]))
            .find(|(one, next)| next.entered_ns < one.left_ns)
    }

    /// From the first section to the last.
    pub(crate) fn span(&self) -> Duration {
        match (self.0.first(), self.0.last()) {
            (Some(first), Some(last)) => Duration::from_nanos(last.left_ns - first.entered_ns),
            _ => Duration::ZERO,
        }
    }

    /// How often one process followed another.
    pub(crate) fn hand_overs(&self) -> usize {
        let pairs = self.0.windows(2);
        pairs
            .filter(|pair| pair[0].process != pair[1].process)
            .count()
    }

    /// The longest time in which nobody was in a section.
    pub(crate) fn longest_gap_ns(&self) -> u64 {
        let gaps = self.0.windows(2);
        gaps.map(|pair| pair[1].entered_ns.saturating_sub(pair[0].left_ns))
            .max()
            .unwrap_or(0)
    }

    /// All waits, the shortest first.
    pub(crate) fn waits_ns(&self) -> Vec<u64> {
        let mut waits: Vec<u64> = self.0.iter().map(|s| s.entered_ns - s.asked_ns).collect();
        waits.sort_unstable();
        waits
    }

    /// The most sections of others that anybody had to let pass.
    pub(crate) fn most_let_pass(&self) -> usize {
        let passed = self.0.iter().enumerate().map(|(at, section)| {
            let before = self.0.partition_point(|s| s.entered_ns < section.asked_ns);
            at - before
        });
        passed.max().unwrap_or(0)
    }

    /// The most sections that one process had in a row. Not bounded by the policy while nobody
    /// else is in line, and a newcomer is in line only when its node stands and that is known.
    pub(crate) fn longest_run(&self) -> usize {
        let runs = self.0.chunk_by(|one, next| one.process == next.process);
        runs.map(<[Section]>::len).max().unwrap_or(0)
    }

    /// The sections of each process.
    pub(crate) fn shares(&self, processes: u32) -> Vec<usize> {
        let mut shares = vec![0; processes as usize];
        for section in &self.0 {
            shares[section.process as usize] += 1;
        }
        shares
    }
}

/// The value that this part of the sorted values does not exceed.
pub(crate) fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(0)
}
