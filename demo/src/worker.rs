//! A worker: one process, whose threads share one lock.

use std::io::Write;
use std::sync::Mutex as LocalMutex;
use std::time::{Duration, Instant};

use zklock::{Client, Mutex, MutexGuard};

use crate::ledger::{Entry, Ledger, nanos};
use crate::{Result, Work};

const LOCK: &str = "/zklock-demo/ledger";

pub(crate) fn do_work(work: &Work) -> Result<()> {
    // The parent says nothing on this pipe; it ends when the parent does, however that happens.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        std::process::exit(1);
    });
    let client = Client::builder(&work.servers)
        .session_timeout(Duration::from_secs(4))
        .connect()?;
    let lock = Mutex::new(&client, LOCK)?;
    // What the threads have to say goes to the parent, a line at a time.
    let parent = LocalMutex::new(std::io::stdout());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..work.threads)
            .map(|thread| {
                let (lock, parent) = (&lock, &parent);
                scope.spawn(move || sections(work, thread, lock, parent))
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })
}

/// One thread's share.
fn sections(
    work: &Work,
    thread: usize,
    lock: &Mutex,
    parent: &LocalMutex<std::io::Stdout>,
) -> Result<()> {
    let mut ledger = Ledger::open(&work.ledger)?;
    let mut done = 0;
    while done < work.sections {
        let waiting_since = Instant::now();
        let guard = lock.lock()?;
        let waited = waiting_since.elapsed();
        let outcome = add_one(&mut ledger, thread, &guard)?;
        drop(guard);
        let mut parent = parent.lock().map_err(|_| "a thread panicked")?;
        match outcome {
            Outcome::Done => {
                done += 1;
                writeln!(parent, "done {}", waited.as_micros())?;
            }
            Outcome::Lost => writeln!(parent, "lost")?,
            Outcome::Refused => writeln!(parent, "refused")?,
        }
        parent.flush()?;
    }
    Ok(())
}

/// How a section ended. One that is not done is tried again.
enum Outcome {
    Done,
    /// The lock was lost, or in doubt, before the write.
    Lost,
    /// We did not know, but the ledger did.
    Refused,
}

/// The critical section: reads the balance, and writes one more.
fn add_one(ledger: &mut Ledger, thread: usize, guard: &MutexGuard) -> Result<Outcome> {
    let begun = nanos();
    let token = match guard.fencing_token() {
        Ok(token) => token.as_u64(),
        Err(error) if error.is_lock_lost() || error.is_connection_loss() => {
            return Ok(Outcome::Lost);
        }
        Err(error) => return Err(error.into()),
    };
    let old = ledger.last()?.map_or(0, |last| last.new);
    if !guard.is_held() {
        return Ok(Outcome::Lost);
    }
    let entry = Entry {
        token,
        worker: std::process::id(),
        thread,
        begun,
        written: nanos(),
        old,
        new: old + 1,
    };
    let in_time = ledger.append(&entry)?;
    Ok(if in_time {
        Outcome::Done
    } else {
        Outcome::Refused
    })
}
