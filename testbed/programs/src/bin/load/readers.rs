//! Readers of one read-write lock, in several processes: how many read at once, how fast, and what
//! that costs the server.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testbed::measure::table::digits;
use zklock::{Client, RwLock};

use super::traffic::Traffic;

/// How long a read takes: the work that readers do at the same time.
const READ: Duration = Duration::from_millis(1);
const SPAN: Duration = Duration::from_secs(3);
const PATH: &str = "/readers";

/// What the readers of one or more processes did together.
#[derive(Default)]
struct Sum {
    reads: u64,
    /// The most at once, of each process.
    at_once: u64,
    requests: u64,
}

/// Prints the table: 1, 8 and 64 reading threads, in one and in four processes.
pub(crate) fn table(servers: &str) {
    println!("\n### Readers of one lock, each read of 1 ms\n");
    println!("| processes | threads | reads/s | : 1 thread | at once | requests a read |");
    println!("|--:|--:|--:|--:|--:|--:|");
    let mut alone = None;
    for processes in [1, 4] {
        for threads in [1, 8, 64] {
            let sum = run(servers, processes, threads);
            let rate = sum.reads as f64 / SPAN.as_secs_f64();
            let alone = *alone.get_or_insert(rate);
            let requests = sum.requests as f64 / sum.reads.max(1) as f64;
            println!(
                "| {processes} | {threads} | {} | {} x | {} | {} |",
                digits(rate),
                digits(rate / alone),
                sum.at_once,
                digits(requests),
            );
        }
    }
}

fn run(servers: &str, processes: usize, threads: usize) -> Sum {
    let mut crew: Vec<_> = (0..processes)
        .map(|_| Reader::start(servers, threads))
        .collect();
    crew.iter_mut()
        .for_each(|reader| assert_eq!(reader.answer(), "ready"));
    let before = Traffic::read(servers).expect("the server answers mntr");
    crew.iter_mut().for_each(Reader::go);
    let mut sum = Sum::default();
    for reader in &mut crew {
        let answer = reader.answer();
        let (reads, at_once) = answer.split_once(' ').expect("two numbers");
        sum.reads += reads.parse::<u64>().expect("a number");
        sum.at_once += at_once.parse::<u64>().expect("a number");
    }
    let after = Traffic::read(servers).expect("the server answers mntr");
    sum.requests = (after - before).received;
    crew.into_iter().for_each(Reader::end);
    sum
}

/// A process. It ends when its input does.
struct Reader {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Reader {
    fn start(servers: &str, threads: usize) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("Linux knows"))
            .args(["reader", servers, &threads.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process can be started");
        Self {
            input: child.stdin.take().expect("piped"),
            output: BufReader::new(child.stdout.take().expect("piped")),
            child,
        }
    }

    fn go(&mut self) {
        writeln!(self.input, "go").expect("the process listens");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    fn end(mut self) {
        drop(self.input);
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "a process has failed: {status}");
    }
}

/// Runs as one of the processes; says how many reads it made, and the most at once.
pub(crate) fn read(servers: &str, threads: usize) {
    let client = Client::connect(servers).expect("the server serves");
    let lock = RwLock::new(&client, PATH).expect("the path is good");
    drop(lock.read().expect("healthy"));
    println!("ready");
    let mut orders = io::stdin().lines();
    if orders.next().is_none() {
        return;
    }
    let end = Instant::now() + SPAN;
    let (reads, inside, most) = (AtomicU64::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while Instant::now() < end {
                    let _guard = lock.read().expect("healthy");
                    let now = inside.fetch_add(1, Ordering::Relaxed) + 1;
                    most.fetch_max(now, Ordering::Relaxed);
                    thread::sleep(READ);
                    inside.fetch_sub(1, Ordering::Relaxed);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    println!("{} {}", reads.into_inner(), most.into_inner());
    let _ = orders.next();
}
