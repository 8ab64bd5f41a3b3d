//! Histories: when each section began and ended, who was inside, and by what right.
//!
//! Several processes, in several languages, write to one file. All read the same clock, the system's
//! monotonic one, and write from inside of the section. Counting what was done would not show an
//! overlap that did no harm; the intervals do.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tempfile::NamedTempFile;

/// How our own sections are signed.
pub(crate) const OURS: &str = "ours";

/// When a section began and ended, in nanoseconds, and whose it was.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) by: String,
    /// `alone`, `shared`, or how many permits.
    pub(crate) right: String,
}

/// A file for all to write their sections to, one line each: `BEGUN ENDED WHO RIGHT`.
#[derive(Debug)]
pub(crate) struct History(NamedTempFile);

impl History {
    pub(crate) fn new() -> Self {
        let file = tempfile::Builder::new().append(true).tempfile();
        Self(file.expect("a place for the history"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Spends a section inside, and writes when that was.
    pub(crate) fn record(&self, length: Duration, right: &str) {
        let begun = now();
        // Work, not a wait: an empty section would seldom show an overlap.
        thread::sleep(length);
        self.write(begun, right);
    }

    /// Writes down a section that ends now.
    pub(crate) fn write(&self, begun: u64, right: &str) {
        let line = format!("{begun} {} {OURS} {right}\n", now());
        // One write, which the system appends as a whole.
        self.0.as_file().write_all(line.as_bytes()).expect("disk");
    }

    /// In the order in which they began.
    pub(crate) fn sections(&self) -> Vec<Section> {
        let text = fs::read_to_string(self.path()).expect("written");
        let mut sections: Vec<_> = text.lines().map(parse).collect();
        sections.sort_by_key(|section| section.begun);
        sections
    }
}

fn parse(line: &str) -> Section {
    let words: Vec<&str> = line.split(' ').collect();
    let [begun, ended, by, right] = words[..] else {
        panic!("four words: {line:?}");
    };
    Section {
        begun: begun.parse().expect("a number"),
        ended: ended.parse().expect("a number"),
        by: by.to_owned(),
        right: right.to_owned(),
    }
}

pub(crate) fn now() -> u64 {
    let time = Duration::try_from(clock_gettime(ClockId::Monotonic)).expect("never negative");
    u64::try_from(time.as_nanos()).expect("500 years")
}

pub(crate) fn count(sections: &[Section], by: &str) -> usize {
    sections.iter().filter(|section| section.by == by).count()
}

#[track_caller]
pub(crate) fn assert_disjoint(sections: &[Section]) {
    for pair in sections.windows(2) {
        assert!(pair[0].ended <= pair[1].begun, "overlap: {pair:?}");
    }
}

/// Whether who is alone was, and among the others nobody was alone.
#[track_caller]
pub(crate) fn assert_writers_alone(sections: &[Section]) {
    let (mut shared_until, mut alone_until) = (0, 0);
    for section in sections {
        assert!(alone_until <= section.begun, "beside a writer: {section:?}");
        if section.right == "alone" {
            assert!(shared_until <= section.begun, "beside readers: {section:?}");
            alone_until = section.ended;
        } else {
            shared_until = section.ended.max(shared_until);
        }
    }
}

/// How often the next section was somebody else's.
pub(crate) fn turns(sections: &[Section]) -> usize {
    let pairs = sections.windows(2);
    pairs.filter(|pair| pair[0].by != pair[1].by).count()
}

/// How many permits there were at once, at the most.
pub(crate) fn most_at_once(sections: &[Section]) -> i64 {
    let permits = |section: &Section| section.right.parse::<i64>().expect("a number");
    let mut changes: Vec<_> = sections
        .iter()
        .flat_map(|one| [(one.begun, permits(one)), (one.ended, -permits(one))])
        .collect();
    // Where one ends as another begins, the end comes first.
    changes.sort_unstable();
    let mut inside = 0;
    let counts = changes.into_iter().map(|(_, change)| {
        inside += change;
        inside
    });
    counts.max().unwrap_or(0)
}
