//! At most N workers at a time, over all machines, on an API that allows no more.
//!
//! Each item of work takes a permit first, in the thread that hands the work out, and sends it
//! along with the work: permits belong to values, not to threads. The maximum stands in ZooKeeper
//! and can be changed while everybody works. An item whose permit is lost is done again.
//!
//! ```text
//! cargo run --example pool -- --items 40                    # in two terminals
//! cargo run --example pool -- --set-max 6                   # in a third
//! ```

use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use crossbeam_channel::{Receiver, Sender, after, bounded, select, unbounded};
use zklock::{AcquireOptions, Client, LockState, Permit, Semaphore, SharedCount};

/// Works on a shared API with at most so many workers over all machines.
#[derive(Parser)]
struct Arguments {
    /// ZooKeeper's servers: host:port,host:port/chroot
    #[arg(long, env = "ZK_CONNECT", default_value = "localhost:2181")]
    servers: String,
    /// The pool's path.
    #[arg(long, default_value = "/pools/geocoder")]
    pool: String,
    /// How many items to work on.
    #[arg(long, default_value = "20")]
    items: u32,
    /// Threads of this process.
    #[arg(long, default_value = "8")]
    threads: u32,
    /// Change the maximum for all, and leave.
    #[arg(long)]
    set_max: Option<i32>,
}

/// An item, and the right to work on it.
struct Order {
    item: u32,
    permit: Permit,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pool: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> zklock::Result<()> {
    let client = Client::connect(&arguments.servers)?;
    let max = SharedCount::new(&client, &format!("{}-max", arguments.pool), 3)?;
    if let Some(new) = arguments.set_max {
        max.set(new)?;
        println!("the maximum is {new} now, for all");
        return Ok(());
    }
    let pool = Semaphore::builder(&client, &arguments.pool)
        .shared_max(&max)
        .build()?;
    println!("at most {} at a time", pool.max()?);
    // No room: an order that lies about would keep a permit from somebody who could work.
    let (orders, to_do) = bounded(0);
    let (done, results) = unbounded();
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            let (to_do, done) = (to_do.clone(), done.clone());
            scope.spawn(move || work(&to_do, &done));
        }
        let outcome = hand_out(&pool, arguments.items, &orders, &results);
        // The workers end when no more orders can come.
        drop(orders);
        outcome
    })
}

/// Hands out all items, and those again whose permit was lost.
fn hand_out(
    pool: &Semaphore,
    items: u32,
    orders: &Sender<Order>,
    results: &Receiver<std::result::Result<u32, u32>>,
) -> zklock::Result<()> {
    let mut to_do: VecDeque<u32> = (1..=items).collect();
    let mut under_way = 0;
    while !to_do.is_empty() || under_way > 0 {
        let result = match to_do.pop_front() {
            Some(item) => {
                order(pool, item, orders)?;
                under_way += 1;
                results.try_recv().ok()
            }
            None => results.recv().ok(),
        };
        under_way -= u32::from(result.is_some());
        if let Some(Err(undone)) = result {
            eprintln!("item {undone}: its permit was lost; it is done again");
            to_do.push_back(undone);
        }
    }
    Ok(())
}

fn order(pool: &Semaphore, item: u32, orders: &Sender<Order>) -> zklock::Result<()> {
    let (to, positions) = unbounded();
    let permit = match pool.try_acquire()? {
        Some(permit) => permit,
        None => pool.acquire_with(AcquireOptions::new().positions(&to))?,
    };
    if let Some(position) = positions.try_iter().next() {
        println!("item {item} had to wait: {position}");
    }
    let order = Order { item, permit };
    orders
        .send(order)
        .expect("workers live as long as orders come");
    Ok(())
}

/// Says of each item whether it was done.
fn work(to_do: &Receiver<Order>, done: &Sender<std::result::Result<u32, u32>>) {
    for Order { item, permit } in to_do {
        println!("item {item} begins");
        let result = select! {
            recv(permit.lost()) -> _ => Err(item),
            // The call to the API.
            // A process that was stopped meanwhile may hear of this before it hears of the loss.
            recv(after(Duration::from_millis(300))) -> _ => {
                if permit.state() == LockState::Lost {
                    Err(item)
                } else {
                    println!("item {item} is done");
                    Ok(item)
                }
            }
        };
        drop(permit);
        // Nobody listens when handing out has failed.
        let _ = done.send(result);
    }
}
