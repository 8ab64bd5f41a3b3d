//! The classical lock of ZooKeeper's recipes, written with the `zookeeper` crate on the session of a
//! zklock client.
//!
//! An ephemeral sequential node in a folder; the lowest number holds; everybody else watches the one
//! before. The guard's `Drop` deletes the node, and a watcher wakes a condition variable. The client
//! keeps the session over broken connections, which the crate alone cannot; what a broken connection
//! has done to a call is left to the program, as by the crate.
//!
//! `cargo run --example by_the_crate -- --servers localhost:2181 --sections 5`
//!
//! A `zklock::Mutex` has more: a holder hears of a loss before anybody else can hold, a node of a lost
//! answer is looked for only after a write (a list alone may come from a server that lags), waits have
//! deadlines, and the threads of a process hand over.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use parking_lot::{Condvar, Mutex};
use zklock::Client;
use zklock::zookeeper::{Acl, CreateMode, WatchedEvent, ZkError, ZkResult, ZooKeeper};

#[derive(Parser)]
struct Arguments {
    /// The servers, host:port,host:port/chroot.
    #[arg(long, env = "ZK_CONNECT", default_value = "localhost:2181")]
    servers: String,
    /// The folder of the lock, a child of the root.
    #[arg(long, default_value = "/by-the-crate")]
    lock: String,
    /// How often to take it.
    #[arg(long, default_value_t = 3)]
    sections: u32,
}

/// Held until it is dropped.
struct Guard<'a> {
    zookeeper: &'a ZooKeeper,
    node: String,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // Any other answer says that the node is gone, or that its session is, and the node with it.
        let _ = again(|| self.zookeeper.delete(&self.node, None));
    }
}

/// A condition variable that a watcher wakes.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    condition: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock() = true;
        self.condition.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock();
        while !*rung {
            self.condition.wait(&mut rung);
        }
    }
}

/// The connection broke: what was asked may have been done or not.
fn is_unclear(error: ZkError) -> bool {
    matches!(error, ZkError::ConnectionLoss | ZkError::OperationTimeout)
}

/// Asks until there is an answer: for what may be done twice.
fn again<T>(ask: impl Fn() -> ZkResult<T>) -> ZkResult<T> {
    loop {
        match ask() {
            Err(error) if is_unclear(error) => std::thread::sleep(Duration::from_millis(20)),
            answer => return answer,
        }
    }
}

/// The number that the server gave to a node; all have ten digits.
fn number(node: &str) -> &str {
    &node[node.len().saturating_sub(10)..]
}

/// Makes our node, whose name begins with `mine`: nobody else's does.
fn enqueue(zookeeper: &ZooKeeper, folder: &str, mine: &str) -> ZkResult<String> {
    let prefix = format!("{folder}/{mine}-");
    let mode = CreateMode::EphemeralSequential;
    loop {
        match zookeeper.create(&prefix, Vec::new(), Acl::open_unsafe().clone(), mode) {
            Err(error) if is_unclear(error) => {
                let names = again(|| zookeeper.get_children(folder, false))?;
                if let Some(name) = names.iter().find(|name| name.starts_with(mine)) {
                    return Ok(format!("{folder}/{name}"));
                }
            }
            made => return made,
        }
    }
}

fn lock<'a>(zookeeper: &'a ZooKeeper, folder: &str, mine: &str) -> ZkResult<Guard<'a>> {
    let (acl, mode) = (Acl::open_unsafe(), CreateMode::Persistent);
    match again(|| zookeeper.create(folder, Vec::new(), acl.clone(), mode)) {
        Ok(_) | Err(ZkError::NodeExists) => {}
        Err(error) => return Err(error),
    }
    let node = enqueue(zookeeper, folder, mine)?;
    // From here on the node is deleted, whatever comes.
    let guard = Guard { zookeeper, node };
    loop {
        let names = again(|| zookeeper.get_children(folder, false))?;
        if !names.iter().any(|name| guard.node.ends_with(name)) {
            return Err(ZkError::NoNode);
        }
        let own = number(&guard.node);
        let ahead = names.iter().filter(|name| number(name) < own);
        let Some(before) = ahead.max_by_key(|name| number(name)) else {
            return Ok(guard);
        };
        let bell = Arc::new(Bell::default());
        let watcher = {
            let bell = Arc::clone(&bell);
            move |_: WatchedEvent| bell.ring()
        };
        match zookeeper.get_data_w(&format!("{folder}/{before}"), watcher) {
            Ok(_) => bell.wait(),
            Err(ZkError::NoNode) => {}
            Err(error) if is_unclear(error) => {}
            Err(error) => return Err(error),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let client = Client::connect(&arguments.servers)?;
    let zookeeper = client.zookeeper()?;
    let (session, process) = (zookeeper.session_id(), std::process::id());
    for section in 0..arguments.sections {
        let mine = format!("{session:x}-{process}-{section}");
        let guard = lock(&zookeeper, &arguments.lock, &mine)?;
        let mut said = std::io::stdout();
        said.write_all(format!("enter {mine}\n").as_bytes())?;
        std::thread::sleep(Duration::from_millis(5));
        said.write_all(format!("leave {mine}\n").as_bytes())?;
        drop(guard);
    }
    Ok(())
}
