//! A batch job on several processes: each thread of each updates one shared ledger, one at a time.
//!
//! `scripts/demo` runs it on a real ensemble and kills the ensemble's leader and one of the
//! workers half-way. At the end the ledger itself shows whether anything was lost.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex as LocalMutex;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand};
use hdrhistogram::Histogram;
use zklock::{Client, FencingToken, Mutex};

const LOCK: &str = "/zklock-demo/ledger";

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Updates one ledger from many threads of several processes, under one ZooKeeper lock.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Start the workers, do harm half-way, and check the ledger.
    Run(Run),
    /// What `run` starts.
    #[command(hide = true)]
    Work(Work),
}

#[derive(Args)]
struct Run {
    /// ZooKeeper's servers: host:port,host:port/chroot
    #[arg(long, default_value = "localhost:2181")]
    servers: String,
    #[arg(long, default_value_t = 3)]
    processes: usize,
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Sections for each thread.
    #[arg(long, default_value_t = 250)]
    sections: usize,
    /// A shell command to run when half of the sections are done.
    #[arg(long)]
    half_way: Option<String>,
    /// Kill the last worker at that time, too.
    #[arg(long)]
    kill_worker: bool,
}

#[derive(Args)]
struct Work {
    servers: String,
    ledger: PathBuf,
    threads: usize,
    sections: usize,
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("error")).init();
    let outcome = match Arguments::parse().role {
        Role::Run(run) => supervise(&run),
        Role::Work(work) => do_work(&work),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("batch: {error}");
            ExitCode::FAILURE
        }
    }
}

// ---- the ledger ----

/// One line of the ledger: an update of the balance from `old` to `new`.
struct Entry {
    token: u64,
    /// The process that wrote it.
    worker: u32,
    /// When its section began and when it was written, in nanoseconds since 1970. One machine, so
    /// one clock.
    begun: u128,
    written: u128,
    old: u64,
    new: u64,
}

impl Entry {
    fn parse(line: &str) -> Result<Self> {
        let mut words = line.split(' ');
        let mut next = || words.next().ok_or("the ledger has a torn line");
        Ok(Self {
            token: next()?.parse()?,
            worker: next()?.parse()?,
            begun: next()?.parse()?,
            written: next()?.parse()?,
            old: next()?.parse()?,
            new: next()?.parse()?,
        })
    }
}

/// A file that only grows: the last line has the balance and the largest token. Nothing in it
/// excludes two writers; that is what the lock is for.
struct Ledger(File);

impl Ledger {
    fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().read(true).append(true).open(path);
        Ok(Self(
            file.map_err(|error| format!("{}: {error}", path.display()))?,
        ))
    }

    fn last(&mut self) -> Result<Option<Entry>> {
        let length = self.0.seek(SeekFrom::End(0))?;
        self.0.seek(SeekFrom::Start(length.saturating_sub(256)))?;
        let mut end = String::new();
        self.0.read_to_string(&mut end)?;
        end.lines().next_back().map(Entry::parse).transpose()
    }

    /// Adds one to the balance: reads, then writes. Refuses a token smaller than the last one, as
    /// a store must that wants to be safe from a holder who is late.
    fn add_one(&mut self, token: FencingToken, begun: u128) -> Result<()> {
        let (old, largest) = match self.last()? {
            Some(last) => (last.new, last.token),
            None => (0, 0),
        };
        if token.as_u64() < largest {
            return Err(format!("token {token} is late: {largest} was here").into());
        }
        let (worker, written) = (std::process::id(), nanos());
        let line = format!("{token} {worker} {begun} {written} {old} {}\n", old + 1);
        Ok(self.0.write_all(line.as_bytes())?)
    }
}

fn nanos() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos())
}

// ---- a worker ----

fn do_work(work: &Work) -> Result<()> {
    let client = Client::builder(&work.servers)
        .session_timeout(Duration::from_secs(4))
        .connect()?;
    let lock = Mutex::new(&client, LOCK)?;
    // What the threads have to say goes to the parent, a line at a time.
    let parent = LocalMutex::new(std::io::stdout());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..work.threads)
            .map(|_| scope.spawn(|| sections(work, &lock, &parent)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })
}

/// One thread's share.
fn sections(work: &Work, lock: &Mutex, parent: &LocalMutex<std::io::Stdout>) -> Result<()> {
    let mut ledger = Ledger::open(&work.ledger)?;
    let say = |line: String| {
        let mut parent = parent.lock().map_err(|_| "a thread panicked")?;
        writeln!(parent, "{line}")?;
        parent.flush()?;
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    };
    let mut done = 0;
    while done < work.sections {
        let waiting_since = Instant::now();
        let guard = lock.lock()?;
        let waited = waiting_since.elapsed();
        let begun = nanos();
        // Between two breaths the lock may be lost; then the section is not done, and tried again.
        let token = match guard.fencing_token() {
            Ok(token) if guard.is_held() => token,
            _ => {
                say("again".to_owned())?;
                continue;
            }
        };
        ledger.add_one(token, begun)?;
        drop(guard);
        done += 1;
        say(format!("done {}", waited.as_micros()))?;
    }
    Ok(())
}

// ---- the supervisor ----

struct Worker {
    child: Child,
    done: usize,
    again: usize,
    waits_us: Histogram<u64>,
    killed: bool,
    failed: bool,
}

fn supervise(run: &Run) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let ledger = folder.path().join("ledger");
    File::create(&ledger)?;
    let (mut workers, news) = start_workers(run, &ledger)?;
    follow(run, &mut workers, &news)?;
    let wanted = run.threads * run.sections;
    for worker in &mut workers {
        let status = worker.child.wait()?;
        worker.failed = !worker.killed && (!status.success() || worker.done != wanted);
    }
    report(&workers);
    let ledger = BufReader::new(File::open(&ledger)?);
    let entries = ledger.lines().map(|line| Entry::parse(&line?));
    prove(&entries.collect::<Result<Vec<_>>>()?, &workers)
}

type News = (usize, Option<String>);

fn start_workers(run: &Run, ledger: &Path) -> Result<(Vec<Worker>, Receiver<News>)> {
    let (tell, news) = mpsc::channel();
    let mut workers = Vec::new();
    for index in 0..run.processes {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["work", &run.servers])
            .arg(ledger)
            .args([run.threads.to_string(), run.sections.to_string()])
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
            again: 0,
            waits_us: Histogram::new(3)?,
            killed: false,
            failed: false,
        });
    }
    Ok((workers, news))
}

/// Listens to the workers until all have ended, and does harm half-way.
fn follow(run: &Run, workers: &mut [Worker], news: &Receiver<News>) -> Result<()> {
    let total = run.processes * run.threads * run.sections;
    let mut progress = Progress::new(total);
    let mut harmed = run.half_way.is_none() && !run.kill_worker;
    let mut running = workers.len();
    while running > 0 {
        match news.recv()? {
            (_, None) => running -= 1,
            (index, Some(line)) => {
                let worker = &mut workers[index];
                match line.split_once(' ') {
                    Some(("done", waited)) => {
                        worker.done += 1;
                        worker.waits_us.record(waited.parse()?)?;
                    }
                    _ => worker.again += 1,
                }
            }
        }
        let done = workers.iter().map(|worker| worker.done).sum();
        progress.show(done);
        if !harmed && done * 2 >= total {
            harmed = true;
            progress.end_line();
            do_harm(run, workers)?;
        }
    }
    progress.end_line();
    Ok(())
}

fn do_harm(run: &Run, workers: &mut [Worker]) -> Result<()> {
    if let Some(command) = &run.half_way {
        let status = Command::new("sh").args(["-c", command]).status()?;
        if !status.success() {
            return Err(format!("half-way: {command:?} ended with {status}").into());
        }
    }
    if let (true, Some(victim)) = (run.kill_worker, workers.last_mut()) {
        println!("half-way: killing worker {} (SIGKILL)", victim.child.id());
        victim.killed = true;
        victim.child.kill()?;
    }
    Ok(())
}

/// One line that changes on a terminal, or a line for each tenth elsewhere.
struct Progress {
    total: usize,
    shown: usize,
    terminal: bool,
    began: Instant,
}

impl Progress {
    fn new(total: usize) -> Self {
        Self {
            total,
            shown: 0,
            terminal: std::io::stdout().is_terminal(),
            began: Instant::now(),
        }
    }

    fn show(&mut self, done: usize) {
        let step = if self.terminal { 100 } else { 10 };
        if done * step / self.total == self.shown * step / self.total {
            return;
        }
        self.shown = done;
        let (percent, seconds) = (done * 100 / self.total, self.began.elapsed().as_secs_f64());
        let bar = format!("{:<20}", "#".repeat(percent / 5));
        let line = format!(
            "[{bar}] {percent:3} %  {done} of {} sections, {seconds:.1} s",
            self.total
        );
        if self.terminal {
            print!("\r{line} ");
            let _ = std::io::stdout().flush();
        } else {
            println!("{line}");
        }
    }

    fn end_line(&self) {
        if self.terminal {
            println!();
        }
    }
}

fn report(workers: &[Worker]) {
    println!("\nworker    sections  again  wait p50    p99       longest");
    for worker in workers {
        let at = |quantile| worker.waits_us.value_at_quantile(quantile);
        let ms = |us: u64| format!("{}.{:03} ms", us / 1000, us % 1000);
        println!(
            "{:<9} {:<9} {:<6} {:<11} {:<10} {} {}",
            worker.child.id(),
            worker.done,
            worker.again,
            ms(at(0.5)),
            ms(at(0.99)),
            ms(worker.waits_us.max()),
            if worker.killed { "(killed)" } else { "" }
        );
    }
}

/// What the ledger shows.
fn prove(entries: &[Entry], workers: &[Worker]) -> Result<()> {
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
    for worker in workers.iter().filter(|worker| !worker.killed) {
        let id = worker.child.id();
        let written = entries.iter().filter(|entry| entry.worker == id).count();
        check(
            &format!(
                "worker {id} did all it had to: {} sections, {written} in the ledger",
                worker.done
            ),
            !worker.failed && written == worker.done,
        );
    }
    if failed {
        return Err("the ledger shows that something went wrong".into());
    }
    Ok(())
}
