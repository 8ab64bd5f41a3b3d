//! The recipes of docs/command-recipes.md, played as they stand there: only what cannot be here (the
//! servers' names, absolute paths, hours) is put in its place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use testbed::wait_until;

use crate::fixtures::{
    Running, SOON, Said, client, queue_length, said, send, server, wait_for_queue,
};

const RECIPES: &str = include_str!("../../../docs/command-recipes.md");
const PAGE: &str = include_str!("../../../docs/command.md");

/// The first block of code after a heading.
fn block<'a>(page: &'a str, heading: &str) -> &'a str {
    let after = page.split_once(heading).expect("the heading stands").1;
    let after = after.split_once("\n```").expect("a block").1;
    let code = after.split_once('\n').expect("lines").1;
    code.split_once("```").expect("an end").0
}

/// A text with something in the place of something, which must be there.
#[track_caller]
fn put(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from:?} is not in: {text}");
    text.replace(from, to)
}

/// Programs, credentials and what they leave behind.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().expect("a place for it");
        let machine = Self { folder };
        fs::create_dir(machine.file("bin")).expect("the folder is ours");
        let program = machine.file("bin/zklock");
        symlink(env!("CARGO_BIN_EXE_zklock"), program).expect("the folder is ours");
        let auth = machine.file("zk-auth");
        fs::write(&auth, "digest:batch:secret\n").expect("the folder is ours");
        make_mode(&auth, 0o600);
        machine
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// Puts a program where `PATH` finds it. It knows the folder as `$AT`.
    fn program(&self, name: &str, script: &str) {
        let file = self.file(&format!("bin/{name}"));
        let text = format!("#!/bin/sh\nAT='{}'\n{script}\n", self.name(""));
        fs::write(&file, text).expect("the folder is ours");
        make_mode(&file, 0o755);
    }

    /// A shell with nothing in its environment but what is named.
    fn shell(&self, script: &str, variables: &[(String, String)]) -> Command {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", script]).env_clear();
        shell.envs(variables.iter().map(|(name, value)| (name, value)));
        shell
    }

    fn path(&self) -> String {
        format!("{}:/usr/bin:/bin", self.name("bin"))
    }

    #[track_caller]
    fn wait_for(&self, file: &str) {
        wait_until(file, SOON, || self.file(file).exists());
    }
}

fn make_mode(file: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// As cron does: lines with `=` are its environment beside the little that it has itself; the sixth
/// field of the others is for `sh -c`.
#[test]
fn a_line_of_a_crontab_runs_on_one_machine_and_sends_no_mail_on_the_others() {
    let machine = Machine::new();
    let tab = block(RECIPES, "## cron");
    let tab = put(
        tab,
        "zk1:2181,zk2:2181,zk3:2181",
        &server().connect_string(),
    );
    let tab = put(&tab, "/etc/zklock/auth", &machine.name("zk-auth"));
    let tab = put(
        &tab,
        "PATH=/usr/local/bin:",
        &format!("PATH={}:", machine.name("bin")),
    );
    let tab = put(&tab, "/jobs/nightly", "/recipes/nightly");
    let (settings, entries): (Vec<_>, Vec<_>) = tab.lines().partition(|line| {
        line.split_once('=')
            .is_some_and(|(name, _)| !name.contains(' '))
    });
    let mut variables = vec![
        ("PATH", "/usr/bin:/bin"),
        ("SHELL", "/bin/sh"),
        ("HOME", "/"),
    ];
    variables.extend(settings.iter().filter_map(|line| line.split_once('=')));
    let variables: Vec<_> = variables
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let [entry] = entries[..] else {
        panic!("one entry: {entries:?}")
    };
    assert!(!entry.contains('%'), "cron ends a command there: {entry}");
    let command = entry.splitn(6, ' ').nth(5).expect("five fields of time");

    machine.program("backup", "echo \"$*\" >$AT/began; read line; exit 3");
    let first = Running::start(&mut machine.shell(command, &variables));
    machine.wait_for("began");
    let began = fs::read_to_string(machine.file("began"));
    assert_eq!(began.expect("written"), "--all\n");
    let Said { status, out, err } = said(&mut machine.shell(command, &variables));
    assert_eq!((status, &*out, &*err), (0, "", ""));
    // A job that fails is told of by its status; what cron mails is what it writes.
    let Said { status, out, err } = first.finish();
    assert_eq!((status, &*out, &*err), (3, "", ""));
}

/// `systemd-analyze` knows each line, and the service does what the page says: one worker, which hears
/// a stop once.
#[test]
fn a_unit_is_understood_and_its_service_runs() {
    let machine = Machine::new();
    let unit = block(RECIPES, "## systemd");
    let unit = put(unit, "/usr/local/bin", &machine.name("bin"));
    machine.program(
        "batch-worker",
        "trap 'echo term; exit 0' TERM; echo $ZKLOCK_PATH; while :; do sleep 0.02; done",
    );
    let file = machine.file("worker.service");
    fs::write(&file, &unit).expect("the folder is ours");
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["verify", "--man=no"]).arg(&file);
    if analyze
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
    {
        let analyzed = said(&mut analyze);
        assert_eq!(
            (analyzed.status, &*analyzed.err),
            (0, ""),
            "{}",
            analyzed.out
        );
    } else {
        eprintln!("left out: there is no systemd-analyze");
    }

    let credentials = |line: &str| put(line, "%d/", &machine.name(""));
    let connect = server().connect_string();
    let mut service = None;
    let mut variables = vec![("PATH".to_owned(), machine.path())];
    for line in unit.lines() {
        if let Some(variable) = line.strip_prefix("Environment=") {
            let (name, value) = variable.split_once('=').expect("a variable");
            let value = match name {
                "ZK_CONNECT" => connect.clone(),
                _ => credentials(value),
            };
            variables.push((name.to_owned(), value));
        } else if let Some(start) = line.strip_prefix("ExecStart=") {
            service = Some(put(start, "/workers/batch", "/recipes/batch"));
        }
    }
    let service = format!("exec {}", service.expect("a command"));
    let mut first = Running::start(&mut machine.shell(&service, &variables));
    assert_eq!(first.line(), "/recipes/batch");
    let second = Running::start(&mut machine.shell(&service, &variables));
    wait_for_queue(&client(), "/recipes/batch", 2);
    // Another takes over.
    send(first.pid(), Signal::TERM);
    let first = first.end();
    assert_eq!((first.status, &*first.out), (0, "term\n"), "{}", first.err);
    let mut second = second.expect("/recipes/batch");
    send(second.pid(), Signal::TERM);
    assert_eq!(second.line(), "term");
    assert_eq!(second.end().status, 0);
    assert_eq!(queue_length(&client(), "/recipes/batch"), 0);
}

/// The command of the container, as the first process of a PID namespace.
#[test]
fn a_cron_job_of_a_cluster_runs_as_the_first_process() {
    let possible = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "true"])
        .stderr(Stdio::null())
        .status();
    if !possible.is_ok_and(|ended| ended.success()) {
        eprintln!("left out: no PID namespace can be made here");
        return;
    }
    let machine = Machine::new();
    let manifest = block(RECIPES, "## Kubernetes");
    let manifest = put(manifest, "/jobs/nightly", "/recipes/cluster");
    let line = manifest
        .lines()
        .find_map(|line| line.trim().strip_prefix("command: "));
    let words: Vec<String> = serde_json::from_str(line.expect("a command")).expect("a list");
    let folder = machine.name("");
    assert!(manifest.contains("mountPath: /run/secrets/zookeeper,"));
    assert!(manifest.contains("value: /run/secrets/zookeeper/auth }"));
    fs::rename(machine.file("zk-auth"), machine.file("auth")).expect("the folder is ours");
    machine.program(
        "backup",
        "read pid name state above rest </proc/$PPID/stat; echo \"$*, $name of $above\"
        trap 'echo term; exit 4' TERM
        setsid sh -c 'trap \"\" TERM; sleep 1000' >/dev/null 2>&1 &
        while :; do sleep 0.02; done",
    );
    let start = || {
        let mut container = Command::new("unshare");
        container.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        container
            .args(&words)
            .env_clear()
            .env("PATH", machine.path());
        container.env("ZK_CONNECT", server().connect_string());
        container.env("ZK_AUTH_FILE", format!("{folder}/auth"));
        container
    };
    let mut first = Running::start(&mut start());
    assert_eq!(first.line(), "--all, (watchdog) of 1");
    let lost = said(&mut start());
    assert_eq!((lost.status, &*lost.out), (0, ""), "{}", lost.err);
    // As the cluster ends a container: TERM to its first process.
    let children = format!("/proc/{0}/task/{0}/children", first.pid());
    let inner = fs::read_to_string(children).expect("it runs");
    send(inner.trim().parse().expect("a process id"), Signal::TERM);
    assert_eq!(first.line(), "term");
    // And nothing that the job has left outlives it.
    assert_eq!(first.end().status, 4);
    assert_eq!(queue_length(&client(), "/recipes/cluster"), 0);
}

#[test]
fn scripts_run_under_a_lock_and_tell_a_busy_one_from_a_failure() {
    let machine = Machine::new();
    let variables = [
        ("PATH".to_owned(), machine.path()),
        ("ZK_CONNECT".to_owned(), server().connect_string()),
    ];
    let text = block(RECIPES, "## Shell scripts");
    let (again, cases) = text.split_once("\n\n").expect("two parts");
    let again = put(again, "/deploy/web", "/recipes/web");
    machine.program("deploy", &format!("{again}\necho $ZKLOCK_PATH \"$1\""));
    let deployed = said(&mut machine.shell("deploy 'a b'", &variables));
    assert_eq!(
        (deployed.status, &*deployed.out),
        (0, "/recipes/web a b\n"),
        "{}",
        deployed.err
    );

    let cases = put(cases, "/jobs/import", "/recipes/import");
    machine.program("importing", &format!("{cases}\necho done"));
    for (import, status, out) in [("exit 0", 0, "done\n"), ("exit 5", 5, "")] {
        machine.program("import", import);
        let ended = said(&mut machine.shell("importing", &variables));
        assert_eq!((ended.status, &*ended.out), (status, out), "{}", ended.err);
    }
    machine.program("import", "echo began; read line; exit 0");
    let first = Running::start(&mut machine.shell("importing", &variables)).expect("began");
    let busy = said(&mut machine.shell("importing", &variables));
    assert_eq!(busy.out, "somebody else imports\ndone\n", "{}", busy.err);
    assert_eq!(first.finish().out, "done\n");
}

/// A section of a script, by `zklock hold`.
#[test]
fn a_script_holds_a_lock_for_a_part_of_it() {
    let machine = Machine::new();
    let script = block(PAGE, "## `zklock hold`");
    let script = put(script, "/jobs/release", "/recipes/release");
    machine.program(
        "publish",
        "zklock who /recipes/release | cut -d' ' -f1; echo \"$1\"",
    );
    let file = machine.file("release");
    fs::write(&file, format!("{script}\necho ended $?\n")).expect("the folder is ours");
    let mut bash = Command::new("bash");
    bash.arg(&file).env_clear().env("PATH", machine.path());
    let released = said(bash.env("ZK_CONNECT", server().connect_string()));
    let out = "holds\n--fencing-token\nended 0\n";
    assert_eq!(
        (released.status, &*released.out),
        (0, out),
        "{}",
        released.err
    );
    assert_eq!(queue_length(&client(), "/recipes/release"), 0);
}
