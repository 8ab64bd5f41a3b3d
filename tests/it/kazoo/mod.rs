//! Together with real kazoo, Python's client: each recipe, in both directions.

use std::fs::{self, File};
use std::io::Write;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::NamedTempFile;
use zklock::Client;

use crate::ground::{SOON, server};
use crate::support::{Kazoo, wait_until};

mod double_barrier;
mod mutex;
mod rw_lock;
mod semaphore;

/// Long enough for a wait to be in the queue when it ends.
const SHORT: Duration = Duration::from_millis(300);
/// Work, not a wait: an empty section would seldom show an overlap. As long as kazoo's.
const SECTION: Duration = Duration::from_millis(1);

fn kazoo() -> Kazoo {
    Kazoo::start(&server().connect_string())
}

/// Has kazoo do something that is just to be done.
#[track_caller]
fn tell(kazoo: &mut Kazoo, command: &str) {
    assert_eq!(kazoo.say(command), "ok", "{command}");
}

/// Waits until a session other than this client's watches the node: then kazoo has looked, and
/// decided to wait for it.
#[track_caller]
fn wait_until_kazoo_watches(path: &str, ours: &Client) {
    let own = format!("{:#x}", ours.session_id().expect("it stands"));
    wait_until(&format!("kazoo watches {path}"), SOON, || {
        // Each path on a line, and after it the sessions that watch it, indented.
        let watches = server().admin("wchp");
        let lines = watches.lines().skip_while(|line| *line != path).skip(1);
        let mut sessions = lines.map_while(|line| line.strip_prefix('\t'));
        sessions.any(|session| session != own)
    });
}

/// When a section began and ended, and whose it was.
struct Section {
    begun: u128,
    ended: u128,
    by_kazoo: bool,
}

/// A file for both to write their sections to.
fn history() -> NamedTempFile {
    let file = tempfile::Builder::new().append(true).tempfile();
    file.expect("a place for the history")
}

/// Spends a section inside, and writes when that was.
fn record(history: &File, length: Duration) {
    let begun = nanos();
    thread::sleep(length);
    write(history, begun, nanos());
}

fn write(mut history: &File, begun: u128, ended: u128) {
    // One write, which the system appends as a whole.
    let line = format!("{begun} {ended} ours\n");
    history.write_all(line.as_bytes()).expect("disk");
}

fn nanos() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_nanos()
}

/// In the order in which they were written. kazoo's lines have two numbers, ours a word more.
fn read(history: &NamedTempFile) -> Vec<Section> {
    let section = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        Section {
            begun: words[0].parse().expect("a number"),
            ended: words[1].parse().expect("a number"),
            by_kazoo: words.len() == 2,
        }
    };
    let text = fs::read_to_string(history.path()).expect("written");
    text.lines().map(section).collect()
}
