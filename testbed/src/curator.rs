//! A real Curator, Java's client, to share locks with.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use super::installation::Installation;
use super::repository;

/// Longer than any command takes that is right to wait for.
const ANSWER: Duration = Duration::from_secs(60);

/// A thread in a Java process that does as it is told; `testbed/curator/Puppet.java` lists the
/// commands. Dropping it ends its session when no other thread shares it, and so frees what it held.
#[derive(Debug)]
pub struct Curator {
    machine: Arc<Machine>,
    id: u32,
    from: Receiver<String>,
    /// An answer that was looked at, and not taken yet.
    arrived: Option<String>,
    last_command: String,
}

impl Curator {
    /// Gets one with a session of its own, and returns when that stands.
    ///
    /// # Panics
    /// If Curator is missing and cannot be installed: a skipped test proves nothing.
    pub fn start(servers: &str) -> Curator {
        Curator::begin(Machine::shared(), &format!("connect {servers}"))
    }

    /// Gets one in a process of its own, which ends with it.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn start_apart(servers: &str) -> Curator {
        let machine = Arc::new(needed(Machine::start()));
        Curator::begin(machine, &format!("connect {servers}"))
    }

    /// Another thread of the same session, with the same locks.
    pub fn thread(&self) -> Curator {
        Curator::begin(Arc::clone(&self.machine), &format!("join {}", self.id))
    }

    fn begin(machine: Arc<Machine>, command: &str) -> Curator {
        let (id, from) = machine.new_actor();
        let mut curator = Curator {
            machine,
            id,
            from,
            arrived: None,
            last_command: String::new(),
        };
        curator.tell(command);
        curator
    }

    /// Sends a command, not waiting for its answer.
    #[track_caller]
    pub fn command(&mut self, command: &str) {
        command.clone_into(&mut self.last_command);
        self.machine.send(self.id, command);
    }

    /// The next answer.
    ///
    /// # Panics
    /// If none comes within 60 s, or the process has ended.
    #[track_caller]
    pub fn answer(&mut self) -> String {
        if let Some(arrived) = self.arrived.take() {
            return arrived;
        }
        self.from
            .recv_timeout(ANSWER)
            .unwrap_or_else(|error| panic!("Curator, told {:?}: {error}", self.last_command))
    }

    /// Whether the answer to the last command has come.
    pub fn has_answered(&mut self) -> bool {
        self.arrived = self.arrived.take().or_else(|| self.from.try_recv().ok());
        self.arrived.is_some()
    }

    /// Sends a command and returns its answer.
    #[track_caller]
    pub fn say(&mut self, command: &str) -> String {
        self.command(command);
        self.answer()
    }

    /// Has it do something that is just to be done.
    #[track_caller]
    pub fn tell(&mut self, command: &str) {
        self.command(command);
        self.done();
    }

    /// Waits until the last command, which is just to be done, has been.
    #[track_caller]
    pub fn done(&mut self) {
        assert_eq!(self.answer(), "ok", "Curator, told {:?}", self.last_command);
    }
}

impl Drop for Curator {
    fn drop(&mut self) {
        self.machine.send(self.id, "quit");
        self.machine
            .actors
            .lock()
            .expect("nobody panics inside")
            .remove(&self.id);
    }
}

/// The process of its actors. It ends with its input, so with ours, however that ends.
#[derive(Debug)]
struct Machine {
    to: Mutex<ChildStdin>,
    actors: Arc<Mutex<HashMap<u32, Sender<String>>>>,
    last_id: AtomicU32,
}

impl Machine {
    /// Started once in a test process, also when that fails: it takes its time.
    fn shared() -> Arc<Machine> {
        static STARTED: OnceLock<Result<Arc<Machine>, String>> = OnceLock::new();
        let started = STARTED.get_or_init(|| Machine::start().map(Arc::new));
        needed(started.clone())
    }

    fn start() -> Result<Machine, String> {
        let mut child = java("Puppet")?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let to = child.stdin.take().expect("stdin is piped");
        let mut answers = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut ready = String::new();
        answers
            .read_line(&mut ready)
            .map_err(|error| error.to_string())?;
        if ready.trim_end() != "ready" {
            return Err(format!("instead of \"ready\" it said {ready:?}"));
        }
        let machine = Machine {
            to: Mutex::new(to),
            actors: Arc::default(),
            last_id: AtomicU32::new(0),
        };
        let actors = Arc::clone(&machine.actors);
        thread::spawn(move || deliver(answers, &actors));
        Ok(machine)
    }

    fn new_actor(&self) -> (u32, Receiver<String>) {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (to_actor, from) = channel();
        let mut actors = self.actors.lock().expect("nobody panics inside");
        actors.insert(id, to_actor);
        (id, from)
    }

    fn send(&self, id: u32, command: &str) {
        let line = format!("{id} {command}\n");
        let mut to = self.to.lock().expect("nobody panics inside");
        // If it has ended, the wait for the answer says so.
        let _ = to.write_all(line.as_bytes());
    }
}

/// What could be had with a real Curator at hand.
pub fn needed<T>(had: Result<T, String>) -> T {
    had.unwrap_or_else(|why| {
        panic!(
            "the tests need Curator, Java's client, and could not get it.\n\
             Run: scripts/install-curator\n{why}"
        )
    })
}

/// A test ends before it would be worth while to compile anything well.
static UNHURRIED: AtomicBool = AtomicBool::new(true);

/// Has the process, which must not have been started, be as fast as Java can: for benches.
pub fn at_full_speed() {
    UNHURRIED.store(false, Ordering::Relaxed);
}

fn pace() -> Option<&'static str> {
    let unhurried = UNHURRIED.load(Ordering::Relaxed);
    unhurried.then_some("-XX:TieredStopAtLevel=1")
}

/// Hands each answer to whom it is for. Ends with the process, and then nobody gets another.
fn deliver(answers: BufReader<ChildStdout>, actors: &Mutex<HashMap<u32, Sender<String>>>) {
    for line in answers.lines().map_while(Result::ok) {
        let addressed = line.split_once(' ').and_then(|(id, answer)| {
            let id: u32 = id.parse().ok()?;
            Some((id, answer.to_owned()))
        });
        let Some((id, answer)) = addressed else {
            eprintln!("Curator's process said {line:?}");
            continue;
        };
        let actors = actors.lock().expect("nobody panics inside");
        // One that was dropped hears nothing more.
        if let Some(actor) = actors.get(&id) {
            let _ = actor.send(answer);
        }
    }
    actors.lock().expect("nobody panics inside").clear();
}

/// Runs a program of `testbed/curator`, with Curator at hand.
pub fn java(program: &str) -> Result<Command, String> {
    let curator = class_path()?;
    let classes = compiled(program, &curator)?;
    let all = [classes.into_os_string(), curator.into()].join(":".as_ref());
    let mut command = Command::new(&Installation::find().java);
    command
        .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:-UsePerfData"])
        .args(pace())
        .arg("-Djava.net.preferIPv4Stack=true")
        // It shouts when a session ends while somebody waits, which tests do on purpose.
        .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
        .arg("-cp")
        .arg(all)
        .arg(program);
    Ok(command)
}

/// Asks the script where Curator is, once. It has little to do when it is there.
fn class_path() -> Result<String, String> {
    static FOUND: OnceLock<Result<String, String>> = OnceLock::new();
    let ask = || {
        let script = repository().join("scripts/install-curator");
        let output = run(Command::new(script))?;
        let path = String::from_utf8(output.stdout).map_err(|error| error.to_string())?;
        Ok(path.trim_end().to_owned())
    };
    FOUND.get_or_init(ask).clone()
}

/// Compiles a Java program, unless that was done before: into the target folder, in a folder that
/// is named for what it was made from.
fn compiled(program: &str, class_path: &str) -> Result<PathBuf, String> {
    let source = repository().join(format!("testbed/curator/{program}.java"));
    let text = fs::read(&source).map_err(|error| error.to_string())?;
    let mut hasher = DefaultHasher::new();
    (program, class_path, text).hash(&mut hasher);
    let all = target().join("curator");
    let classes = all.join(format!("{:016x}", hasher.finish()));
    if classes.exists() {
        return Ok(classes);
    }
    fs::create_dir_all(&all).map_err(|error| error.to_string())?;
    // Made elsewhere and renamed, so that it is whole or is not there.
    let new = tempfile::tempdir_in(&all).map_err(|error| error.to_string())?;
    let mut javac = match env::var_os("JAVA_HOME") {
        Some(home) => Command::new(Path::new(&home).join("bin/javac")),
        None => Command::new("javac"),
    };
    javac.args(["--release", "11", "-cp", class_path, "-d"]);
    javac.arg(new.path()).arg(source);
    run(javac)?;
    match fs::rename(new.path(), &classes) {
        // Another test process may have been quicker. Its work is as good.
        Err(error) if !classes.exists() => Err(error.to_string()),
        _ => Ok(classes),
    }
}

fn run(mut command: Command) -> Result<Output, String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(output)
}

/// Where Cargo puts what it builds in this profile.
fn target() -> PathBuf {
    let mut path = env::current_exe().expect("we run");
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    path
}
