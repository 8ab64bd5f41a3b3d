//! Who holds the lock: this process, or another one that is there to be stopped.

use std::time::Duration;

use testbed::process::test_alone;
use testbed::puppet::{self, Puppet, answer};
use zklock::{Client, FencingToken, Mutex, MutexGuard};

use crate::stores::{Place, Refused};
use crate::story::servers;

/// Long enough for anything that happens at all.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// The session timeout of the holder that is stopped.
pub(crate) const T: Duration = Duration::from_secs(3);

const SERVERS: &str = "ZKLOCK_TEST_HOLDER_SERVERS";
const LOCK: &str = "ZKLOCK_TEST_HOLDER_LOCK";
const STORE: &str = "ZKLOCK_TEST_HOLDER_STORE";

/// A hold of the lock.
pub(crate) struct Held {
    pub(crate) client: Client,
    pub(crate) guard: MutexGuard,
    pub(crate) token: FencingToken,
}

impl Held {
    /// Waits for the lock.
    pub(crate) fn lock(servers: &str, path: &str, session: Duration) -> Self {
        let client = Client::builder(servers).session_timeout(session);
        let client = client.connect().expect("it serves");
        let guard = Mutex::new(&client, path).expect("a good path").lock();
        let guard = guard.expect("its turn comes");
        let token = guard.fencing_token().expect("a mutex has one");
        Self {
            client,
            guard,
            token,
        }
    }
}

/// Starts a process that has the lock, has taken the store over, and has written `first`. Returns its token, too.
pub(crate) fn start(lock: &str, store: &Place) -> (Puppet, FencingToken) {
    let mut command = test_alone(module_path!(), "a_holder_does_as_it_is_told");
    command
        .env(SERVERS, servers())
        .env(LOCK, lock)
        .env(STORE, store.to_text());
    let mut holder = Puppet::started(command);
    assert_eq!(holder.say("write first"), "written");
    let token: u64 = holder.say("token").parse().expect("a number");
    (holder, token.into())
}

/// Obeys until nobody commands any more. It does not look at its lock before it writes: that is the story.
fn obey(servers: &str, lock: &str, store: &Place) {
    let held = Held::lock(servers, lock, T);
    let mut store = store.open();
    let before = store.take_over(&held);
    assert_eq!(before.as_deref(), Ok(""), "the first holder of all");
    let mut orders = puppet::orders().map(|line| line.expect("text"));
    while let Some(order) = orders.next() {
        match order.split_once(' ').unwrap_or((&order, "")) {
            ("write", body) => tell(store.write(&held, body)),
            ("write-unguarded", body) => {
                store.write_unguarded(body);
                answer("written");
            }
            ("write-slowly", body) => {
                let mut pause = || {
                    answer("in the middle");
                    assert_eq!(orders.next().as_deref(), Some("go on"));
                };
                tell(store.write_slowly(&held, body, &mut pause));
            }
            ("token", _) => answer(&held.token.to_string()),
            ("lost", _) => {
                let reason = held.guard.lost().recv_timeout(SOON);
                answer(&format!("{reason:?}"));
            }
            _ => panic!("not an order: {order}"),
        }
    }
}

fn tell(written: Result<(), Refused>) {
    match written {
        Ok(()) => answer("written"),
        Err(Refused::Late) => answer("late"),
        Err(Refused::Failed(why)) => answer(&format!("failed: {}", why.replace('\n', " "))),
    }
}

/// Also where the process of a holder begins.
#[test]
fn a_holder_does_as_it_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    if let Ok(servers) = std::env::var(SERVERS) {
        let told = |name| std::env::var(name).expect("told with the servers");
        obey(&servers, &told(LOCK), &Place::from_text(&told(STORE)));
        return;
    }
    let file = Place::File(folder.path().join("plan"));
    let (mut holder, token) = start("/locks/told", &file);
    assert_eq!(holder.say("write again"), "written");
    assert_eq!(holder.say("token"), token.to_string());
    assert_eq!(file.open().read(), "again");
    holder.end();
}
