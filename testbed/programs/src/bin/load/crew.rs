//! A crew of processes that load one lock: started, let go at once, gathered in.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use testbed::measure::table::{digits, duration};
use zklock::{Client, Mutex, WaitStrategy};

use super::history::{self, History, Section, now_ns, percentile};
use super::traffic::Traffic;

/// A thread that has made so many sections stops, or memory would be the limit.
const MOST_SECTIONS_A_PROCESS: usize = 4_000_000;

/// What is asked of the lock.
#[derive(Args, Clone)]
pub(crate) struct Load {
    /// ZooKeeper's connect string; without it `ZK_CONNECT`, or a server of its own.
    #[arg(long)]
    pub(crate) servers: Option<String>,
    #[arg(long, default_value = "/load")]
    pub(crate) path: String,
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) processes: u32,
    /// In each process.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: u32,
    #[arg(long, default_value_t = 5)]
    pub(crate) seconds: u64,
    /// Of each thread; then there is no limit of time.
    #[arg(long)]
    pub(crate) sections: Option<usize>,
    /// Local hand-overs while another process waits.
    #[arg(long)]
    pub(crate) max_handoffs: Option<u32>,
    /// Milliseconds of local hand-overs while another process waits.
    #[arg(long)]
    pub(crate) max_tenure: Option<u64>,
    /// Milliseconds to keep an idle lock.
    #[arg(long, default_value_t = 0)]
    pub(crate) linger: u64,
    #[arg(long)]
    pub(crate) no_hand_off: bool,
    #[arg(long, value_enum, default_value_t = Wait::Predecessor)]
    pub(crate) wait: Wait,
    /// Milliseconds between two looks of `--wait polling`.
    #[arg(long, default_value_t = 10)]
    pub(crate) poll: u64,
    /// How long a section takes: on the processor, from 1 ms up asleep as if it waited for a disk.
    #[arg(long, default_value_t = 0)]
    pub(crate) sections_work_us: u64,
    /// Which of the processes this is; set by the tool itself.
    #[arg(long, hide = true, default_value_t = 0)]
    pub(crate) number: u32,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Wait {
    Predecessor,
    Parent,
    Polling,
}

impl Load {
    pub(crate) fn new(servers: String, processes: u32, threads: u32) -> Load {
        Load {
            servers: Some(servers),
            path: "/load".to_owned(),
            processes,
            threads,
            seconds: 5,
            sections: None,
            max_handoffs: None,
            max_tenure: None,
            linger: 0,
            no_hand_off: false,
            wait: Wait::Predecessor,
            poll: 10,
            sections_work_us: 0,
            number: 0,
        }
    }

    fn servers(&self) -> &str {
        self.servers.as_deref().expect("chosen before the start")
    }

    fn command_line(&self, number: u32) -> Vec<String> {
        let wait = self.wait.to_possible_value().expect("none is skipped");
        let mut line: Vec<String> = [
            ("--servers", self.servers().to_owned()),
            ("--path", self.path.clone()),
            ("--processes", self.processes.to_string()),
            ("--threads", self.threads.to_string()),
            ("--seconds", self.seconds.to_string()),
            ("--linger", self.linger.to_string()),
            ("--wait", wait.get_name().to_owned()),
            ("--poll", self.poll.to_string()),
            ("--sections-work-us", self.sections_work_us.to_string()),
            ("--number", number.to_string()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect();
        let mut add = |name: &str, value: Option<String>| {
            line.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
        };
        add("--sections", self.sections.map(|n| n.to_string()));
        add("--max-handoffs", self.max_handoffs.map(|n| n.to_string()));
        add("--max-tenure", self.max_tenure.map(|n| n.to_string()));
        line.extend(self.no_hand_off.then(|| "--no-hand-off".to_owned()));
        line
    }

    fn lock(&self, client: &Client) -> Mutex {
        let mut lock = Mutex::builder(client, &self.path)
            .local_hand_off(!self.no_hand_off)
            .linger(Duration::from_millis(self.linger))
            .wait_strategy(match self.wait {
                Wait::Predecessor => WaitStrategy::PredecessorWatch,
                Wait::Parent => WaitStrategy::ParentWatch,
                Wait::Polling => WaitStrategy::Polling(Duration::from_millis(self.poll)),
            });
        if let Some(most) = self.max_handoffs {
            lock = lock.max_handoffs(most);
        }
        if let Some(most) = self.max_tenure {
            lock = lock.max_tenure(Duration::from_millis(most));
        }
        lock.build().expect("the path is good")
    }
}

// ---- the tool's side ----

/// What a crew has done.
pub(crate) struct Outcome {
    pub(crate) history: History,
    pub(crate) overlap: Option<(Section, Section)>,
    pub(crate) waits_ns: Vec<u64>,
    pub(crate) shares: Vec<usize>,
    pub(crate) traffic: Option<Traffic>,
}

/// Runs the load. `servers` must have been chosen.
///
/// # Panics
/// If a process fails.
pub(crate) fn run(load: &Load) -> Outcome {
    run_watched(load, || (), || ())
}

/// Runs the load, and calls `before` when all are ready and `after` when all have finished (but
/// not closed their sessions yet).
pub(crate) fn run_watched(load: &Load, before: impl FnOnce(), after: impl FnOnce()) -> Outcome {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut crew: Vec<Worker> = (0..load.processes)
        .map(|number| Worker::start(load, number, &records_of(folder.path(), number)))
        .collect();
    crew.iter_mut().for_each(|worker| worker.expect("ready"));
    before();
    let start = Traffic::read(load.servers());
    crew.iter_mut().for_each(|worker| worker.say("go"));
    crew.iter_mut().for_each(|worker| worker.expect("done"));
    let end = Traffic::read(load.servers());
    after();
    crew.into_iter().for_each(Worker::end);
    let traffic = end.zip(start).map(|(end, start)| end - start);
    Outcome::gather(folder.path(), load.processes, traffic)
}

/// Where a process of the crew leaves its sections.
pub(crate) fn records_of(folder: &Path, number: u32) -> PathBuf {
    folder.join(number.to_string())
}

/// A process of the crew. It ends when its input does, so never outlives the tool.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<Box<dyn Read>>,
}

impl Worker {
    fn start(load: &Load, number: u32, records: &Path) -> Worker {
        let tool = std::env::current_exe().expect("Linux knows");
        let mut child = Command::new(tool)
            .arg("worker")
            .args(load.command_line(number))
            .arg("--records")
            .arg(records)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process can be started");
        let output: Box<dyn Read> = Box::new(child.stdout.take().expect("piped"));
        Worker {
            input: child.stdin.take().expect("piped"),
            output: BufReader::new(output),
            child,
        }
    }

    fn say(&mut self, word: &str) {
        writeln!(self.input, "{word}").expect("the process listens");
    }

    fn expect(&mut self, word: &str) {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        read.expect("a pipe can be read");
        assert_eq!(line.trim(), word, "a process has failed");
    }

    fn end(mut self) {
        drop(self.input);
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "a process has failed: {status}");
    }
}

impl Outcome {
    /// Reads what the processes have left.
    pub(crate) fn gather(folder: &Path, processes: u32, traffic: Option<Traffic>) -> Outcome {
        let records = (0..processes).map(|number| records_of(folder, number));
        let sections = records
            .flat_map(|records| history::read(&records).expect("the process has written it"));
        let history = History::new(sections.collect());
        Outcome {
            overlap: history.overlap(),
            waits_ns: history.waits_ns(),
            shares: history.shares(processes),
            traffic,
            history,
        }
    }

    /// Sections a second.
    pub(crate) fn rate(&self) -> f64 {
        self.history.len() as f64 / self.history.span().as_secs_f64()
    }

    pub(crate) fn wait(&self, percent: usize) -> String {
        show_ns(percentile(&self.waits_ns, percent))
    }
}

pub(crate) fn show_ns(ns: u64) -> String {
    duration(ns as f64)
}

pub(crate) fn per(count: u64, of: usize) -> String {
    digits(count as f64 / of.max(1) as f64)
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sections, hand_overs) = (self.history.len(), self.history.hand_overs());
        let span = self.history.span();
        let rate = digits(self.rate());
        writeln!(f, "sections            {sections} in {span:.2?}: {rate}/s")?;
        let rate = digits(hand_overs as f64 / span.as_secs_f64());
        writeln!(f, "process hand-overs  {hand_overs}: {rate}/s")?;
        writeln!(
            f,
            "wait of a thread    p50 {}, p99 {}, longest {}, or {} sections of others",
            self.wait(50),
            self.wait(99),
            self.wait(100),
            self.history.most_let_pass(),
        )?;
        let run = self.history.longest_run();
        writeln!(
            f,
            "longest run         {run} sections of one process in a row"
        )?;
        write!(f, "share of processes ")?;
        for share in &self.shares {
            write!(f, " {:.1}%", *share as f64 * 100.0 / sections.max(1) as f64)?;
        }
        writeln!(f)?;
        if let Some(traffic) = self.traffic {
            writeln!(
                f,
                "server              {} packets received, {} sent, {} watches fired",
                traffic.received, traffic.sent, traffic.events
            )?;
            writeln!(
                f,
                "requests            {} a section, {} a process hand-over",
                per(traffic.received, sections),
                per(traffic.received, hand_overs)
            )?;
            writeln!(
                f,
                "watches fired       {} a section, {} a process hand-over",
                per(traffic.events, sections),
                per(traffic.events, hand_overs)
            )?;
        }
        match &self.overlap {
            None => writeln!(f, "exclusion           kept: no two sections overlapped"),
            Some((one, other)) => writeln!(
                f,
                "exclusion           BROKEN: process {} thread {} left at {} ns, \
                 process {} thread {} had entered at {} ns",
                one.process, one.thread, one.left_ns, other.process, other.thread, other.entered_ns
            ),
        }
    }
}

// ---- the process' side ----

/// Runs as one of the processes.
pub(crate) fn work(load: &Load, records: &Path) {
    let client = Client::connect(load.servers()).expect("the server serves");
    let lock = load.lock(&client);
    // The first acquire looks whether the folder is there.
    drop(lock.lock().expect("healthy"));
    lock.release_idle().expect("healthy");
    println!("ready");
    let mut orders = io::stdin().lines();
    if orders.next().is_none() {
        return;
    }
    let deadline = Instant::now() + Duration::from_secs(load.seconds);
    let sections: Vec<Section> = thread::scope(|scope| {
        let threads: Vec<_> = (0..load.threads)
            .map(|thread| {
                let lock = &lock;
                scope.spawn(move || sections_of(load, thread, lock, deadline))
            })
            .collect();
        let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
        joined.flat_map(|done| done.expect("no panic")).collect()
    });
    println!("done");
    history::write(records, &sections).expect("the disk has room");
    // The others may still wait for their turn: an idle lock must not be in their way.
    lock.release_idle().expect("healthy");
    let _ = orders.next();
}

fn sections_of(load: &Load, thread: u32, lock: &Mutex, deadline: Instant) -> Vec<Section> {
    let most = MOST_SECTIONS_A_PROCESS / load.threads as usize;
    let mut sections = Vec::new();
    loop {
        let asked_ns = now_ns();
        let guard = lock.lock().expect("healthy");
        let entered_ns = now_ns();
        work_for(load.sections_work_us, entered_ns);
        let left_ns = now_ns();
        drop(guard);
        sections.push(Section {
            process: load.number,
            thread,
            asked_ns,
            entered_ns,
            left_ns,
        });
        let over = match load.sections {
            Some(wanted) => sections.len() >= wanted,
            None => Instant::now() >= deadline,
        };
        if over || sections.len() >= most {
            return sections;
        }
    }
}

fn work_for(micros: u64, since_ns: u64) {
    if micros >= 1_000 {
        return thread::sleep(Duration::from_micros(micros));
    }
    while micros > 0 && now_ns() - since_ns < micros * 1_000 {
        std::hint::spin_loop();
    }
}
