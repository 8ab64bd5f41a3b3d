//! Together with real kazoo, Python's client: each recipe, in both directions.

use testbed::{Kazoo, wait_until};
use zklock::Client;

use super::{SECTION, SHORT};
use crate::fixtures::{SOON, server};

mod double_barrier;
mod election;
mod mutex;
mod rw_lock;
mod semaphore;

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
