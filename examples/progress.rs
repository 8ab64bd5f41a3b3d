//! A batch job that keeps its progress in a node beside its lock.
//!
//! The lock is zklock's; the node is the program's own, read and written by the `zookeeper` crate on the same
//! session. Whoever gets the lock goes on where the last one stopped. It begins by writing what it has read, which
//! makes a new version, and each later write names the version of the one before. So a write that comes late, from
//! a holder that has lost the lock, is refused by the servers.
//!
//! `cargo run --example progress -- --servers localhost:2181 --steps 10`

use std::time::Duration;

use clap::Parser;
use zklock::zookeeper::{Acl, CreateMode, ZkError, ZkResult, ZooKeeper};
use zklock::{Client, HoldView, Mutex};

#[derive(Parser)]
struct Arguments {
    /// The servers, host:port,host:port/chroot.
    #[arg(long, env = "ZK_CONNECT", default_value = "localhost:2181")]
    servers: String,
    /// The lock, a child of the root; the progress is beside it, in a node with `-progress` behind.
    #[arg(long, default_value = "/import")]
    lock: String,
    /// How many steps the job has.
    #[arg(long, default_value_t = 10)]
    steps: u32,
    /// Stop after so many, as if the machine had gone down.
    #[arg(long)]
    stop_after: Option<u32>,
}

/// How many steps are done, and the version of the node that says so.
struct Progress {
    done: u32,
    version: i32,
}

impl Progress {
    /// Reads how far the last holder came, and takes its right to write.
    fn take_over(zookeeper: &ZooKeeper, path: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let acl = Acl::open_unsafe().clone();
        match again(|| zookeeper.create(path, b"0".to_vec(), acl.clone(), CreateMode::Persistent)) {
            Ok(_) | Err(ZkError::NodeExists) => {}
            Err(error) => return Err(format!("{path} cannot be made: {error}").into()),
        }
        let (data, version) = loop {
            let (data, stat) = again(|| zookeeper.get_data(path, false))?;
            match zookeeper.set_data(path, data.clone(), Some(stat.version)) {
                Ok(stat) => break (data, stat.version),
                // Its last write came between, or a break: read again.
                Err(ZkError::BadVersion | ZkError::ConnectionLoss | ZkError::OperationTimeout) => {}
                Err(error) => return Err(format!("{path}: {error}").into()),
            }
        };
        let done = std::str::from_utf8(&data)?.parse();
        let done = done.map_err(|error| format!("{path} has no number: {error}"))?;
        Ok(Self { done, version })
    }

    /// Writes that one more step is done, if nobody else has written meanwhile.
    fn advance(
        &mut self,
        zookeeper: &ZooKeeper,
        path: &str,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let next = (self.done + 1).to_string().into_bytes();
        match zookeeper.set_data(path, next.clone(), Some(self.version)) {
            Ok(stat) => self.version = stat.version,
            // It may have been written: then the node has what we wanted to write, one version on.
            Err(ZkError::ConnectionLoss | ZkError::OperationTimeout) => {
                let (data, stat) = again(|| zookeeper.get_data(path, false))?;
                let is_ours = data == next && stat.version == self.version + 1;
                if !is_ours && stat.version == self.version {
                    return self.advance(zookeeper, path);
                }
                if !is_ours {
                    return Err(format!("{path} was written by somebody else").into());
                }
                self.version = stat.version;
            }
            Err(error) => return Err(format!("{path}: {error}").into()),
        }
        self.done += 1;
        Ok(())
    }
}

/// Asks until there is an answer: for what may be done twice.
fn again<T>(ask: impl Fn() -> ZkResult<T>) -> ZkResult<T> {
    loop {
        match ask() {
            Err(ZkError::ConnectionLoss | ZkError::OperationTimeout) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            answer => return answer,
        }
    }
}

/// One step of the work. It looks whether the lock is still ours before it does what cannot be undone.
fn work(step: u32, view: &HoldView) -> Result<(), Box<dyn std::error::Error>> {
    if !view.is_held() {
        return Err(format!("the lock was lost before step {step}").into());
    }
    println!("step {step}");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let client = Client::connect(&arguments.servers)?;
    let guard = Mutex::new(&client, &arguments.lock)?.lock()?;
    let zookeeper = client.zookeeper()?;
    let path = format!("{}-progress", arguments.lock);
    let mut progress = Progress::take_over(&zookeeper, &path)?;
    let mut left = arguments.stop_after.unwrap_or(u32::MAX);
    while progress.done < arguments.steps && left > 0 {
        work(progress.done + 1, &guard.view())?;
        progress.advance(&zookeeper, &path)?;
        left -= 1;
    }
    println!("{} of {} steps are done", progress.done, arguments.steps);
    guard.unlock()?;
    Ok(())
}
