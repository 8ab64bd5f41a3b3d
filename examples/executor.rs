//! Locks in an asynchronous program: the guard lives on a thread that may block, and the work on
//! the executor.
//!
//! ```sh
//! cargo run --example executor -- localhost:2181 count
//! cargo run --example executor -- localhost:2181 hold
//! ```
//!
//! `count`: tasks of one executor thread count under one lock, and each gives up its thread in the
//! middle. `hold`: holds until the lock is lost, and says so. See docs/executors.md.

use std::cell::Cell;
use std::future::Future;
use std::process::ExitCode;
use std::rc::Rc;

use tokio::sync::oneshot;
use tokio::task::{JoinError, LocalSet, spawn_blocking, spawn_local, yield_now};
use zklock::{AcquireOptions, CancelToken, Client, FencingToken, HoldView, LossReason, Mutex};

/// What the work is given while the lock is held.
struct Held {
    /// To look whether it still is; a look at the clock and at memory.
    view: HoldView,
    /// For stores that refuse late writes.
    token: FencingToken,
}

/// Why the work was not done.
#[derive(Debug)]
enum NotDone {
    /// The lock could not be had, or not be given back.
    Lock(zklock::Error),
    /// It was lost meanwhile: the work was dropped where it waited.
    Lost(LossReason),
    /// The thread that kept the guard has panicked.
    Keeper(JoinError),
}

/// Runs `work` on the executor while a thread of the blocking pool holds the lock.
///
/// Whoever drops this future ends the wait for the lock, or the work, and gives the lock back. If
/// the lock is lost, the work is dropped at its next `.await`.
async fn with_lock<T, W>(lock: &Mutex, work: impl FnOnce(Held) -> W) -> Result<T, NotDone>
where
    W: Future<Output = T>,
{
    let stop = CancelOnDrop(CancelToken::new());
    let (won, held) = oneshot::channel();
    let (tell_loss, lost) = oneshot::channel();
    // Nothing is sent on it: it ends when this future has done its work, or is dropped.
    let (release, released) = crossbeam_channel::bounded::<()>(0);
    let (lock, token) = (lock.clone(), stop.0.clone());
    let keeper = spawn_blocking(move || {
        let guard = lock.lock_with(AcquireOptions::new().cancel(&token))?;
        let (view, token) = (guard.view(), guard.fencing_token()?);
        if won.send(Held { view, token }).is_err() {
            // Nobody waits for it any more.
            return guard.unlock();
        }
        crossbeam_channel::select! {
            recv(released) -> _ => {}
            recv(guard.lost()) -> why => {
                let _ = tell_loss.send(why.unwrap_or(LossReason::Session));
                // The work ends before the guard does.
                let _ = released.recv();
            }
        }
        guard.unlock()
    });
    let done = match held.await {
        Ok(held) => tokio::select! {
            biased;
            Ok(why) = lost => Some(Err(NotDone::Lost(why))),
            done = work(held) => Some(Ok(done)),
        },
        // The keeper has failed, and says why.
        Err(_) => None,
    };
    drop(release);
    let given_back = keeper.await.map_err(NotDone::Keeper)?;
    match done {
        // That it could not be given back is no news then.
        Some(Err(why)) => Err(why),
        Some(Ok(done)) => given_back.map(|()| done).map_err(NotDone::Lock),
        None => Err(NotDone::Lock(given_back.expect_err("it has sent nothing"))),
    }
}

/// A thread of the pool cannot be stopped from outside; a wait of zklock can.
struct CancelOnDrop(CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

const TASKS: u32 = 4;
const SECTIONS: u32 = 10;

/// All tasks take turns on one thread: a section of one could begin inside that of another.
async fn count(lock: Mutex) -> Result<(), NotDone> {
    let (inside, total) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (lock, inside, total) = (lock.clone(), Rc::clone(&inside), Rc::clone(&total));
            spawn_local(async move {
                for _ in 0..SECTIONS {
                    with_lock(&lock, async |held: Held| {
                        inside.set(inside.get() + 1);
                        let read = total.get();
                        // Whoever else is ready runs here.
                        yield_now().await;
                        assert_eq!(inside.get(), 1, "two sections at a time");
                        assert!(held.view.is_held(), "token {}", held.token);
                        total.set(read + 1);
                        inside.set(inside.get() - 1);
                    })
                    .await?;
                }
                Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await.map_err(NotDone::Keeper)??;
    }
    println!("{TASKS} tasks on one thread counted to {}", total.get());
    Ok(())
}

async fn hold(lock: Mutex) -> Result<(), NotDone> {
    with_lock(&lock, async |held: Held| {
        println!("held, token {}", held.token);
        std::future::pending::<()>().await;
    })
    .await
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [servers, what] = arguments.as_slice() else {
        eprintln!("usage: executor SERVERS count|hold");
        return ExitCode::FAILURE;
    };
    match run(servers, what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(NotDone::Lost(why)) => {
            println!("lost: {why:?}");
            ExitCode::from(2)
        }
        Err(NotDone::Lock(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        Err(NotDone::Keeper(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(servers: &str, what: &str) -> Result<(), NotDone> {
    // Connecting blocks, and so does the drop of the last handle: both outside of the executor.
    let client = Client::connect(servers).map_err(NotDone::Lock)?;
    let lock = Mutex::new(&client, &format!("/examples/executor-{what}"));
    let lock = lock.map_err(NotDone::Lock)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime without I/O needs nothing");
    LocalSet::new().block_on(&runtime, async {
        match what {
            "hold" => hold(lock).await,
            _ => count(lock).await,
        }
    })
}
