//! The supervisor: starts the workers, does harm half-way, and checks the ledger.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};

use hdrhistogram::Histogram;
use zklock::Client;

use crate::ledger::{Entry, at};
use crate::progress::Progress;
use crate::proof::{prove, report};
use crate::servers::Servers;
use crate::{Result, Run};

pub(crate) struct Worker {
    pub(crate) child: Child,
    pub(crate) done: usize,
    pub(crate) lost: usize,
    pub(crate) refused: usize,
    pub(crate) waits_us: Histogram<u64>,
    pub(crate) killed: bool,
    /// How it ended, once it has.
    pub(crate) ended: Option<ExitStatus>,
}

/// Whatever goes wrong in here, no worker outlives us.
impl Drop for Worker {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

pub(crate) fn supervise(mut run: Run) -> Result<()> {
    if run.kill_worker && run.processes.get() < 2 {
        return Err("--kill-worker leaves nobody to go on; give --processes 2 or more".into());
    }
    let mut servers = None;
    if run.in_memory {
        let started = Servers::start()?;
        run.servers = started.connect_string().to_owned();
        println!(
            "three servers in memory, in process {}, serve at {}",
            started.id(),
            run.servers
        );
        servers = Some(started);
    }
    let run = &run;
    // Once and here, for one clear error instead of one from each worker.
    Client::connect(&run.servers).map_err(|error| {
        format!("{error}; start a server there, name others with --servers, or run scripts/demo")
    })?;
    let folder = tempfile::tempdir()?;
    let ledger = run.ledger.clone();
    let ledger = ledger.unwrap_or_else(|| folder.path().join("ledger"));
    File::create_new(&ledger).map_err(|error| {
        let why = at(&ledger, &error);
        format!("{why}; --ledger takes a file that does not exist, in a folder that does")
    })?;
    let (mut workers, news) = start_workers(run, &ledger)?;
    follow(run, &mut workers, servers.as_mut(), &news)?;
    for worker in &mut workers {
        worker.ended = Some(worker.child.wait()?);
    }
    report(run, &workers)?;
    let lines = BufReader::new(File::open(&ledger)?).lines();
    let entries = lines.map(|line| Entry::parse(&line?));
    prove(run, &entries.collect::<Result<Vec<_>>>()?, &workers)
}

type News = (usize, Option<String>);

fn start_workers(run: &Run, ledger: &Path) -> Result<(Vec<Worker>, Receiver<News>)> {
    let (tell, news) = mpsc::channel();
    let mut workers = Vec::new();
    for index in 0..run.processes.get() {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["worker", &run.servers])
            .arg(ledger)
            .args([run.threads.to_string(), run.sections.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = child.stdout.take().map(BufReader::new);
        let tell = tell.clone();
        std::thread::spawn(move || {
            for line in lines
                .into_iter()
                .flat_map(BufRead::lines)
                .map_while(std::result::Result::ok)
            {
                if tell.send((index, Some(line))).is_err() {
                    return;
                }
            }
            let _ = tell.send((index, None));
        });
        workers.push(Worker {
            child,
            done: 0,
            lost: 0,
            refused: 0,
            waits_us: Histogram::new(3)?,
            killed: false,
            ended: None,
        });
    }
    Ok((workers, news))
}

/// Listens to the workers until all have ended, and does harm half-way.
fn follow(
    run: &Run,
    workers: &mut [Worker],
    mut servers: Option<&mut Servers>,
    news: &Receiver<News>,
) -> Result<()> {
    let total = run.processes.get() * run.share();
    let mut progress = Progress::new(total);
    let mut harmed = run.half_way.is_none() && !run.kill_worker && servers.is_none();
    let mut running = workers.len();
    while running > 0 {
        let (index, line) = news.recv()?;
        let worker = &mut workers[index];
        let Some(line) = line else {
            running -= 1;
            // What it has left undone stays so.
            progress.total -= run.share() - worker.done;
            continue;
        };
        match line.split_once(' ') {
            Some(("done", waited)) => {
                worker.done += 1;
                worker.waits_us.record(waited.parse()?)?;
            }
            _ if line == "refused" => worker.refused += 1,
            _ => worker.lost += 1,
        }
        let done = workers.iter().map(|worker| worker.done).sum();
        progress.show(done);
        if !harmed && done * 2 >= total {
            harmed = true;
            progress.end_line();
            do_harm(run, workers, servers.as_deref_mut())?;
        }
    }
    progress.end_line();
    Ok(())
}

fn do_harm(run: &Run, workers: &mut [Worker], servers: Option<&mut Servers>) -> Result<()> {
    if let Some(servers) = servers {
        println!("half-way: killed the leader, {}", servers.kill_leader()?);
    }
    if let Some(command) = &run.half_way {
        let status = Command::new("sh").args(["-c", command]).status()?;
        if !status.success() {
            return Err(format!("half-way: {command:?} ended with {status}").into());
        }
    }
    let slowest = workers.iter_mut().min_by_key(|worker| worker.done);
    if let (true, Some(victim)) = (run.kill_worker, slowest) {
        println!("half-way: killing worker {} (SIGKILL)", victim.child.id());
        victim.killed = true;
        victim.child.kill()?;
    }
    Ok(())
}
