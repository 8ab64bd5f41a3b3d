//! How to connect: the environment, files and flags, and what the command does not get.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::process::Command;

use testbed::ports::Port;
use zklock::Client;

use crate::fixtures::{Running, bare, said, server, zklock};

/// Everything that a run makes was open to everybody, whatever `ZK_ACL` said.
#[test]
fn what_a_run_makes_is_closed_to_others_if_the_environment_or_a_flag_says_so() {
    let flag = &["--acl=creator-all"][..];
    for (way, variable, flags) in [
        ("env", "creator-all", &[][..]),
        ("flag", "", flag),
        ("both", "open", flag),
    ] {
        let path = format!("/config/acl-{way}");
        let mut command = zklock(["run"]);
        command.args(flags).args([&path, "--", "true"]);
        command.env("ZK_ACL", variable);
        command.env("ZK_AUTH", "digest:owner:secret");
        assert_eq!(said(&mut command).status, 0, "{way}");
        let stranger = said(&mut zklock(["run", "--try", &path, "--", "true"]));
        assert_eq!(stranger.status, 77, "{way}: {}", stranger.err);
    }
}

/// `ZK_TLS` was ignored: a plain connection, with the password in clear.
#[test]
fn tls_is_spoken_if_the_environment_says_so() {
    let mut command = zklock(["run", "--connect-timeout=1s", "/config/tls", "--", "true"]);
    let said = said(command.env("ZK_TLS", "yes"));
    assert_eq!(said.status, 69, "{}", said.err);
}

#[test]
fn the_session_timeout_may_come_from_the_environment() {
    let mut command = zklock([
        "run",
        "-v",
        "--kill-after=1s",
        "/config/timeout",
        "--",
        "true",
    ]);
    let short = said(command.env("ZK_SESSION_TIMEOUT_MS", "3000"));
    assert_eq!(short.status, 64, "{}", short.err);
    assert!(short.err.contains("session timeout, 3s"), "{}", short.err);
    // A flag wins.
    let mut command = zklock(["run", "--session-timeout=10s", "--kill-after=1s"]);
    command.args(["/config/timeout", "--", "true"]);
    assert_eq!(said(command.env("ZK_SESSION_TIMEOUT_MS", "3000")).status, 0);
}

/// The warning named a method of the Rust library, and there was no flag to do it by.
#[test]
fn the_tick_can_be_said_and_is_asked_for_by_its_flag() {
    let run = |flags: &[&'static str], tick: &str| {
        let mut command = zklock(["run", "-v", "--session-timeout=3s"]);
        command.args(flags).args(["/config/tick", "--", "true"]);
        said(command.env("ZK_TICK_TIME_MS", tick))
    };
    let unknown = run(&[], "");
    assert_eq!(unknown.status, 0, "{}", unknown.err);
    let advice = "--tick-time (ZK_TICK_TIME_MS)";
    assert!(unknown.err.contains(advice), "{}", unknown.err);
    assert!(!unknown.err.contains("ClientBuilder"), "{}", unknown.err);
    // A flag wins.
    for (flags, tick) in [(&[][..], "200"), (&["--tick-time=200ms"], "2000")] {
        let known = run(flags, tick);
        assert_eq!(known.status, 0, "{}", known.err);
        assert!(!known.err.contains("tick"), "{}", known.err);
    }
    let longer = run(&["--tick-time=2s"], "200");
    assert!(longer.err.contains("ticks of 2s"), "{}", longer.err);
    for (flags, tick) in [(&["--tick-time=0s"][..], ""), (&[], "0")] {
        let none = run(flags, tick);
        assert_eq!(none.status, 64, "{}", none.err);
        assert!(none.err.contains("tickTime"), "{}", none.err);
    }
    let doctor = |more: &[&'static str]| {
        let mut command = zklock(["doctor", "--session-timeout=3s", "--path=/config/doctor"]);
        said(command.args(more)).out
    };
    assert!(doctor(&[]).contains(advice));
    assert!(!doctor(&["--tick-time=200ms"]).contains("tick"));
}

/// A name that was not text made it connect as nobody, without a word.
#[test]
fn what_cannot_be_read_is_an_error() {
    let not_text = || OsString::from_vec(vec![b'a', 0xff]);
    for name in ["ZK_SASL_USER", "ZK_SASL_PASSWORD", "ZK_AUTH", "ZK_CONNECT"] {
        let mut command = zklock(["run", "/config/text", "--", "true"]);
        let said = said(command.env(name, not_text()));
        assert_eq!(said.status, 64, "{name}: {}", said.err);
        assert!(said.err.contains(name), "{}", said.err);
    }
    for variable in ["ZK_AUTH_FILE", "ZK_SASL_PASSWORD_FILE"] {
        let mut command = zklock(["run", "/config/text", "--", "true"]);
        let said = said(command.env(variable, "/no/such/file"));
        assert_eq!(said.status, 64, "{variable}: {}", said.err);
        assert!(said.err.contains("/no/such/file"), "{}", said.err);
    }
    for flag in ["--auth-file=/no/such/file", "--config=/no/such/file"] {
        let said = said(&mut zklock(["run", flag, "/config/text", "--", "true"]));
        assert_eq!(said.status, 64, "{flag}: {}", said.err);
        assert!(said.err.contains("/no/such/file"), "{}", said.err);
    }
}

#[test]
fn empty_variables_are_none() {
    let mut command = zklock(["run", "/config/empty", "--", "true"]);
    for name in [
        "ZK_AUTH",
        "ZK_ACL",
        "ZK_TLS",
        "ZK_TLS_CA",
        "ZK_SASL_USER",
        "ZK_SESSION_TIMEOUT_MS",
    ] {
        command.env(name, "");
    }
    let said = said(&mut command);
    assert_eq!(said.status, 0, "{}", said.err);
}

#[test]
fn credentials_and_settings_come_from_files() {
    let path = "/config/files";
    let folder = tempfile::tempdir().expect("a place for files");
    let auth = folder.path().join("auth");
    fs::write(&auth, "# the batch user\ndigest:owner:secret\n").expect("written");
    let config = folder.path().join("config.json");
    let servers = server().connect_string();
    let text =
        format!(r#"{{"servers": "{servers}", "creator_all": true, "session_timeout_ms": 7000}}"#);
    fs::write(&config, text).expect("written");
    let mut first = bare();
    first
        .args(["doctor", "--path", "/config/files-doctor", "--config"])
        .arg(&config);
    let first = said(first.arg("--auth-file").arg(&auth));
    assert_eq!(first.status, 0, "{}", first.err);
    assert!(first.out.contains("session timeout: 7s"), "{}", first.out);
    let mut first = bare();
    first
        .arg("run")
        .arg("--config")
        .arg(&config)
        .args([path, "--", "true"]);
    let first = said(first.env("ZK_AUTH_FILE", &auth));
    assert_eq!(first.status, 0, "{}", first.err);
    let stranger = said(&mut zklock(["run", "--try", path, "--", "true"]));
    assert_eq!(stranger.status, 77, "{}", stranger.err);
    fs::write(&config, r#"{"server": "a"}"#).expect("written");
    let wrong = said(bare().arg("who").arg("--config").arg(&config).arg(path));
    assert_eq!(wrong.status, 64);
    assert!(
        wrong.err.contains("unknown field `server`"),
        "{}",
        wrong.err
    );
}

#[test]
fn a_command_does_not_get_our_secrets_unless_it_is_asked_for() {
    let run = |flags: &[&'static str]| {
        let mut command = zklock(["run"]);
        command.args(flags).args(["/config/secrets", "--", "env"]);
        command.env("ZK_AUTH", "digest:owner:secret");
        let said = said(&mut command);
        assert_eq!(said.status, 0, "{}", said.err);
        said.out
    };
    assert!(!run(&[]).contains("secret\n"));
    assert!(run(&["--keep-env"]).contains("ZK_AUTH=digest:owner:secret\n"));
    // What nested runs need is there.
    assert!(run(&[]).contains("ZK_CONNECT="));
}

#[test]
fn a_file_of_secrets_that_others_can_read_is_told_of() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a place for files");
    let auth = folder.path().join("auth");
    fs::write(&auth, "digest:owner:secret\n").expect("written");
    for (mode, is_told) in [(0o600, false), (0o644, true)] {
        fs::set_permissions(&auth, fs::Permissions::from_mode(mode)).expect("it is ours");
        let mut command = zklock(["who", "/config/readable"]);
        let said = said(command.env("ZK_AUTH_FILE", &auth));
        assert_eq!(
            said.err.contains("others can read"),
            is_told,
            "{}",
            said.err
        );
    }
}

/// Whose credentials came from the environment was told to hide a file of settings without any.
#[test]
fn a_file_without_secrets_may_be_read_by_all() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a place for files");
    let config = folder.path().join("config.json");
    for (settings, is_told) in [
        ("", false),
        (
            r#", "auth": [{"scheme": "digest", "credentials": "a:b"}]"#,
            true,
        ),
    ] {
        let servers = server().connect_string();
        let text = format!(r#"{{"servers": "{servers}"{settings}}}"#);
        fs::write(&config, text).expect("written");
        fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).expect("it is ours");
        let mut command = bare();
        command
            .args(["who", "/config/readable", "--config"])
            .arg(&config);
        let said = said(command.env("ZK_AUTH", "digest:owner:secret"));
        assert_eq!(
            said.err.contains("others can read"),
            is_told,
            "{}",
            said.err
        );
    }
}

/// The error of a setting of the wrong form repeated it, password and all.
#[test]
fn what_is_wrong_in_a_file_of_settings_is_told_without_its_secrets() {
    let folder = tempfile::tempdir().expect("a place for files");
    let config = folder.path().join("config.json");
    for text in [
        r#"{"auth": ["digest:owner:5252"]}"#,
        r#"{"auth": "digest:owner:5252"}"#,
        r#"{"sasl": {"user": "owner", "password": 5252}}"#,
        r#"{"sasl": "owner:5252"}"#,
        r#"{"sasl": {"user": "owner", "password": "5252", "digest:5252": 1}}"#,
    ] {
        fs::write(&config, text).expect("written");
        let wrong = said(zklock(["who", "/l", "--config"]).arg(&config));
        assert_eq!(wrong.status, 64, "{text}: {}", wrong.err);
        assert!(!wrong.err.contains("5252"), "{text}: {}", wrong.err);
        assert!(wrong.err.contains("line 1"), "{text}: {}", wrong.err);
    }
}

/// A refused port took 15 s in silence.
#[test]
fn the_time_to_connect_can_be_said() {
    let port = Port::claim();
    let servers = port.addr().to_string();
    let began = std::time::Instant::now();
    let looked = said(bare().args([
        "who",
        "--connect-timeout=300ms",
        "/l",
        "--servers",
        &servers,
    ]));
    assert_eq!(looked.status, 69, "{}", looked.err);
    assert!(began.elapsed() < std::time::Duration::from_secs(12));
}

/// What the caller opened for us before we became somebody with fewer rights.
#[test]
fn a_report_needs_no_right_to_open_its_file_again() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root can give rights away");
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a place for the report");
    let all = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), all).expect("it is ours");
    let program = folder.path().join("zklock");
    fs::copy(env!("CARGO_BIN_EXE_zklock"), &program).expect("it can be copied");
    let report = folder.path().join("report");
    let script = r#"umask 077; exec 3>"$0"
        exec setpriv --reuid=54321 --clear-groups "$1" run --status-fd=3 /config/fd -- true"#;
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(&report).arg(&program);
    let said = said(command.env("ZK_CONNECT", server().connect_string()));
    assert_eq!(said.status, 0, "{}", said.err);
    let report = fs::read_to_string(&report).expect("written");
    assert!(report.contains("\"status\":0"), "{report}");
}

/// Times that no clock can count were a panic.
#[test]
fn times_beyond_reason_are_refused() {
    for flag in [
        "--kill-after=9999999999y",
        "--at-least=101y",
        "--timeout=200y",
    ] {
        let said = said(&mut zklock(["run", flag, "/config/long", "--", "true"]));
        assert_eq!(said.status, 64, "{flag}: {}", said.err);
    }
    let none = said(&mut zklock([
        "run",
        "--kill-after=0s",
        "/config/none",
        "--",
        "true",
    ]));
    assert_eq!(none.status, 0, "{}", none.err);
    let spins = said(&mut zklock(["watch", "--every=0s", "/config/none"]));
    assert_eq!(spins.status, 64, "{}", spins.err);
}

/// Both ran at once.
#[test]
fn a_semaphore_and_a_mutex_do_not_share_a_path() {
    let hold = |flags: &[&'static str], path: &str| {
        let mut command = zklock(["run"]);
        command.args(flags);
        command.args([path, "--", "sh", "-c", "echo ready; read line; exit 0"]);
        Running::start(&mut command).expect("ready")
    };
    let try_it = |flags: &[&'static str], path: &str| {
        let mut command = zklock(["run", "--try"]);
        said(command.args(flags).args([path, "--", "true"]))
    };
    let path = "/config/mixed-1";
    let holder = hold(&["--semaphore=1"], path);
    for flags in [&[][..], &["--shared"], &["--write"]] {
        let refused = try_it(flags, path);
        assert_eq!(refused.status, 64, "{flags:?}: {}", refused.err);
        assert!(refused.err.contains("semaphore"), "{}", refused.err);
    }
    assert_eq!(holder.finish().status, 0);
    // What a semaphore leaves behind is in nobody's way.
    assert_eq!(try_it(&[], path).status, 0);
    let path = "/config/mixed-2";
    let holder = hold(&[], path);
    let refused = try_it(&["--semaphore=1"], path);
    assert_eq!(refused.status, 64, "{}", refused.err);
    assert!(refused.err.contains("mutex"), "{}", refused.err);
    assert_eq!(holder.finish().status, 0);
}

/// It waited for itself, without a word and without an end.
#[test]
fn a_run_under_its_own_lock_is_refused() {
    let program = env!("CARGO_BIN_EXE_zklock");
    let script = |kind: &str| format!("{program} run {kind} --timeout 20s /config/nested -- true");
    let outer = ["run", "/config/nested", "--", "sh", "-c"];
    let within = said(zklock(outer).arg(script("")));
    assert_eq!(within.status, 64, "{}", within.err);
    assert!(
        within.err.contains("would wait for itself"),
        "{}",
        within.err
    );
    // Also with another lock between.
    let between = format!("{program} run /config/between -- {}", script(""));
    assert_eq!(said(zklock(outer).arg(between)).status, 64);
    // Who shares may share again.
    let outer = ["run", "--shared", "/config/nested", "--", "sh", "-c"];
    let within = said(zklock(outer).arg(script("--shared")));
    assert_eq!(within.status, 0, "{}", within.err);
}

/// By cron on every machine: who loses is neither mail nor a failure.
#[test]
fn who_loses_may_say_nothing_and_end_well() {
    let path = "/config/busy";
    let client = Client::connect(&server().connect_string()).expect("the server serves");
    let lock = zklock::Mutex::new(&client, path).expect("a good path");
    let guard = lock.lock().expect("the server serves");
    let flags = [
        "run",
        "--try",
        "--quiet",
        "--busy-status=0",
        path,
        "--",
        "true",
    ];
    let lost = said(&mut zklock(flags));
    assert_eq!((lost.status, &*lost.out, &*lost.err), (0, "", ""));
    let lost = said(&mut zklock([
        "run",
        "--try",
        "--busy-status=3",
        path,
        "--",
        "true",
    ]));
    assert_eq!(lost.status, 3);
    assert!(
        lost.err.contains("somebody else has the lock"),
        "{}",
        lost.err
    );
    drop(guard);
}
