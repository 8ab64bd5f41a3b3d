//! What the workers did, and what the ledger shows.

use hdrhistogram::Histogram;

use crate::ledger::Entry;
use crate::supervisor::Worker;
use crate::{Result, Run};

pub(crate) fn report(run: &Run, workers: &[Worker]) -> Result<()> {
    println!("\nworker    sections  lost  refused  wait p50    p99         longest");
    let line = |who: &str, counts: [usize; 3], waits_us: &Histogram<u64>, note: &str| {
        let ms = |us: u64| format!("{}.{:03} ms", us / 1000, us % 1000);
        let at = |quantile| ms(waits_us.value_at_quantile(quantile));
        let ([done, lost, refused], longest) = (counts, ms(waits_us.max()));
        let (p50, p99) = (at(0.5), at(0.99));
        println!("{who:<9} {done:<9} {lost:<5} {refused:<8} {p50:<11} {p99:<11} {longest}{note}");
    };
    let (mut counts, mut waits_us) = ([0; 3], Histogram::new(3)?);
    for worker in workers {
        let own = [worker.done, worker.lost, worker.refused];
        let note = if worker.killed {
            format!("  killed, {} not done", run.share() - worker.done)
        } else {
            String::new()
        };
        line(&worker.child.id().to_string(), own, &worker.waits_us, &note);
        counts = std::array::from_fn(|i| counts[i] + own[i]);
        waits_us.add(&worker.waits_us)?;
    }
    line("all", counts, &waits_us, "");
    Ok(())
}

/// What the ledger shows.
pub(crate) fn prove(run: &Run, entries: &[Entry], workers: &[Worker]) -> Result<()> {
    println!("\nthe ledger:");
    let mut failed = false;
    let mut check = |what: &str, holds: bool| {
        println!("  {} {what}", if holds { "yes" } else { "NO " });
        failed |= !holds;
    };
    let balance = entries.last().map_or(0, |entry| entry.new);
    check(
        &format!(
            "no update was lost: {} updates, a balance of {balance}",
            entries.len()
        ),
        u64::try_from(entries.len()).is_ok_and(|updates| updates == balance)
            && entries.iter().all(|entry| entry.new == entry.old + 1),
    );
    let pids: Vec<u32> = workers.iter().map(|worker| worker.child.id()).collect();
    check(
        "each update is a worker's, and ended after it began",
        entries.iter().all(|entry| {
            pids.contains(&entry.worker)
                && entry.thread < run.threads.get()
                && entry.begun <= entry.written
        }),
    );
    let pairs = || entries.windows(2).map(|pair| (&pair[0], &pair[1]));
    check(
        "each update began from the one before it",
        pairs().all(|(one, next)| one.new == next.old),
    );
    check(
        "no two sections overlapped",
        pairs().all(|(one, next)| one.written <= next.begun),
    );
    check(
        "fencing tokens never fell",
        pairs().all(|(one, next)| one.token <= next.token),
    );
    // Nobody is paused in here for longer than a session lives, so nobody has cause to be late. And
    // a refused section is not in the ledger: without this, the fence would hide a broken lock
    // from the checks above.
    let refused: usize = workers.iter().map(|worker| worker.refused).sum();
    check(
        &format!("the fence had nothing to do: {refused} late writes refused"),
        refused == 0,
    );
    for worker in workers {
        let id = worker.child.id();
        let (done, wanted) = (worker.done, run.share());
        let written = entries.iter().filter(|entry| entry.worker == id).count();
        if worker.killed {
            // Each thread may have died between its write and the word of it.
            check(
                &format!("killed worker {id} reported {done} sections, {written} in the ledger"),
                (done..=done + run.threads.get()).contains(&written),
            );
        } else {
            let status = worker
                .ended
                .map_or("unknown".into(), |ended| ended.to_string());
            check(
                &format!(
                    "worker {id} did {done} of {wanted} sections, {written} in the ledger ({status})"
                ),
                worker.ended.is_some_and(|ended| ended.success())
                    && done == wanted
                    && written == done,
            );
        }
    }
    if failed {
        return Err("the ledger shows that something went wrong".into());
    }
    Ok(())
}
