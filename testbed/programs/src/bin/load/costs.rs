//! What an acquire and release of an idle lock costs its client: system calls, context switches,
//! requests, time. For the mutex, for the plain calls of the crate, on a connection of its own and by its
//! handle on a client's session, and for Curator's mutex, each in a process of its own, all on one server.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use clap::ValueEnum;
use testbed::measure::bench::repeat;
use testbed::measure::plain::Plain;
use testbed::measure::table::{digits, duration};
use testbed::{at_full_speed, curator, process};
use zklock::{Client, Mutex};

use super::crew::per;
use super::traffic::Traffic;

/// Not counted: connections are made, Java compiles what runs often.
const WARM_UP: usize = 5_000;
/// Under strace, which makes all of it slow, and changes no count.
const TRACED_WARM_UP: usize = 500;
const CYCLES: usize = 3_000;
/// In which all take turns, so that they share the moods of the machine.
const ROUNDS: usize = 10;
/// So many calls of a kind for each cycle are worth a word.
const WORTH_A_WORD: f64 = 0.1;

/// Whose cost it is.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Subject {
    Plain,
    Handle,
    Mutex,
    Curator,
}

const SUBJECTS: [(Subject, &str); 4] = [
    (Subject::Plain, "plain, by the crate"),
    (Subject::Handle, "plain, by its handle"),
    (Subject::Mutex, "`Mutex`"),
    (Subject::Curator, "Curator"),
];

/// Calls of each kind.
type Calls = BTreeMap<String, f64>;

pub(crate) fn table(servers: &str) {
    let strace = Command::new("strace").arg("-V").output();
    assert!(
        strace.is_ok_and(|output| output.status.success()),
        "strace counts the system calls, and is not here; on Debian and Ubuntu: apt-get install strace"
    );
    at_full_speed();
    let calls = SUBJECTS.map(|(subject, _)| calls_a_cycle(subject, servers));
    let costs = in_turns(servers);
    println!("\n### What an acquire and release costs the client\n");
    println!("| | {} |", SUBJECTS.map(|(_, name)| name).join(" | "));
    println!("|---|--:|--:|--:|--:|");
    let row = |name: &str, cells: [String; 4]| println!("| {name} | {} |", cells.join(" | "));
    row(
        "requests",
        costs.each_ref().map(|cost| per(cost.requests, CYCLES)),
    );
    row(
        "system calls of the client (`strace -c -f`)",
        calls.each_ref().map(|calls| digits(calls.values().sum())),
    );
    row(
        "voluntary context switches of the client, all threads",
        costs.each_ref().map(|cost| per(cost.switches, CYCLES)),
    );
    let times = costs
        .each_ref()
        .map(|cost| cost.nanos as f64 / CYCLES as f64);
    row("time", times.map(duration));
    println!();
    for ((_, name), calls) in SUBJECTS.iter().zip(calls) {
        let kinds = calls.iter().filter(|(_, count)| **count >= WORTH_A_WORD);
        let kinds: Vec<String> = kinds
            .map(|(kind, count)| format!("{kind} {}", digits(*count)))
            .collect();
        println!("- {name}: {}", kinds.join(", "));
    }
}

// ---- system calls ----

/// What it calls in a long run and did not in a short one.
fn calls_a_cycle(subject: Subject, servers: &str) -> Calls {
    let short = calls_of(subject, servers, TRACED_WARM_UP);
    let mut calls = calls_of(subject, servers, TRACED_WARM_UP + CYCLES);
    for (kind, count) in &mut calls {
        *count -= short.get(kind).copied().unwrap_or_default();
        *count /= CYCLES as f64;
    }
    calls
}

fn calls_of(subject: Subject, servers: &str, cycles: usize) -> Calls {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let summary = folder.path().join("calls");
    let mut cycler = Cycler::start(
        traced(&subject.command(servers), &summary),
        subject,
        servers,
    );
    cycler.go(cycles);
    cycler.end();
    parse(&fs::read_to_string(summary).expect("strace has written it"))
}

fn traced(command: &Command, summary: &Path) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-c", "-f", "-o"]).arg(summary);
    strace.arg(command.get_program()).args(command.get_args());
    strace
}

/// The lines are: part of the time, seconds, microseconds a call, calls, perhaps errors, name.
fn parse(summary: &str) -> Calls {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let count = fields.get(3)?.parse().ok()?;
        let kind = fields.last().filter(|kind| **kind != "total")?;
        Some(((*kind).to_owned(), count))
    };
    summary.lines().filter_map(line).collect()
}

// ---- switches and time ----

#[derive(Default)]
struct Cost {
    nanos: u64,
    switches: u64,
    requests: u64,
}

fn in_turns(servers: &str) -> [Cost; 4] {
    let mut cyclers = SUBJECTS.map(|(subject, _)| {
        let mut cycler = Cycler::start(subject.command(servers), subject, servers);
        cycler.go(WARM_UP);
        cycler
    });
    let mut costs: [Cost; 4] = Default::default();
    for _ in 0..ROUNDS {
        for (cycler, cost) in cyclers.iter_mut().zip(&mut costs) {
            let pid = cycler.child.id();
            let (switches, traffic) = (process::voluntary_switches(pid), Traffic::read(servers));
            cost.nanos += cycler.go(CYCLES / ROUNDS);
            let now = Traffic::read(servers);
            cost.switches += process::voluntary_switches(pid) - switches;
            let traffic = now.zip(traffic).map(|(now, before)| now - before);
            cost.requests += traffic.expect("our server answers").received;
        }
    }
    cyclers.into_iter().for_each(Cycler::end);
    costs
}

impl Subject {
    fn command(self, servers: &str) -> Command {
        if matches!(self, Subject::Curator) {
            return curator::needed(curator::java("Puppet"));
        }
        let name = self.to_possible_value().expect("none is skipped");
        let mut command = Command::new(std::env::current_exe().expect("Linux knows"));
        command.args(["cycler", name.get_name(), servers]);
        command
    }
}

/// A process that goes through cycles when told how many. It ends when its input does.
struct Cycler {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// What stands before the number of cycles.
    command: &'static str,
}

impl Cycler {
    fn start(mut command: Command, subject: Subject, servers: &str) -> Cycler {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process can be started");
        let mut cycler = Cycler {
            input: child.stdin.take().expect("piped"),
            output: BufReader::new(child.stdout.take().expect("piped")),
            child,
            command: "",
        };
        assert_eq!(cycler.answer(), "ready");
        if matches!(subject, Subject::Curator) {
            // The words of testbed/curator/Puppet.java, to its actor number 1.
            for words in [&format!("connect {servers}"), "mutex it /curator"] {
                assert_eq!(cycler.say(&format!("1 {words}")), "1 ok");
            }
            cycler.command = "1 again it ";
        }
        cycler
    }

    /// How many nanoseconds so many cycles took.
    fn go(&mut self, cycles: usize) -> u64 {
        let answer = self.say(&format!("{}{cycles}", self.command));
        let nanos = answer.split(' ').next_back().expect("there is an answer");
        nanos.parse().expect("nanoseconds")
    }

    fn say(&mut self, words: &str) -> String {
        writeln!(self.input, "{words}").expect("the process listens");
        self.answer()
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

/// Runs as one of the processes.
pub(crate) fn work(subject: Subject, servers: &str) {
    match subject {
        Subject::Plain => {
            let plain = Plain::connect(servers, "/plain");
            obey(|| plain.cycle());
        }
        Subject::Handle => {
            let client = Client::connect(servers).expect("the server serves");
            let handle = client.zookeeper().expect("there is contact");
            let plain = Plain::by(&handle, "/by-the-handle");
            obey(|| plain.cycle());
        }
        Subject::Mutex => {
            let client = Client::connect(servers).expect("the server serves");
            let lock = Mutex::new(&client, "/mutex").expect("the path is good");
            obey(|| drop(lock.lock().expect("healthy")));
        }
        Subject::Curator => unreachable!("Java runs it"),
    }
}

fn obey(cycle: impl Fn()) {
    println!("ready");
    for line in io::stdin().lines() {
        let line = line.expect("a pipe can be read");
        let took = repeat(line.parse().expect("a number of cycles"), &cycle);
        println!("{}", took.as_nanos());
    }
}
