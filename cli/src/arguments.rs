//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

/// Runs commands under distributed locks on Apache ZooKeeper, and shows who holds them.
///
/// A lock is a path in ZooKeeper. `zklock run /locks/nightly -- backup --all` waits until the lock
/// is ours, runs the command, and gives the lock back; if the lock is lost meanwhile, the command
/// is stopped before anybody else can have it.
#[derive(Parser, Debug)]
#[command(
    name = "zklock",
    version,
    propagate_version = true,
    max_term_width = 100
)]
#[command(
    after_help = "Exit statuses of its own: 64 usage, 65 a job's record says no, 69 no server reached, 70 internal, \
                        75 busy or timed out, 77 access refused, 79 lock lost, 126 and 127 the \
                        command cannot be run or was not found, 128 + n ended by signal n."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// How to reach ZooKeeper; before or after the verb. A flag wins over the variable, and that over
/// the file of --config.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArguments {
    /// ZooKeeper's servers: host:port,host:port/chroot [env: ZK_CONNECT]
    #[arg(long, global = true, value_name = "SERVERS")]
    pub(crate) servers: Option<String>,
    /// A file of settings in JSON; what it may say is in the documentation of `ClientConfig`.
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// The session timeout to ask for; a process that dies keeps its locks for this long. Defaults
    /// to 10s [env: ZK_SESSION_TIMEOUT_MS]
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration)]
    pub(crate) session_timeout: Option<Duration>,
    /// How long to look for a server. Defaults to 15s [env: ZK_CONNECT_TIMEOUT_MS]
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration)]
    pub(crate) connect_timeout: Option<Duration>,
    /// The servers' tickTime, from their configuration; to be said if they grant a session timeout
    /// of less than two ticks [env: ZK_TICK_TIME_MS]
    ///
    /// Never less than the true one: a holder could then hear of a loss too late.
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration)]
    pub(crate) tick_time: Option<Duration>,
    /// Credentials, for example digest:user:password; can be given several times [env: ZK_AUTH]
    ///
    /// Others on the machine can see a command line, but not the environment.
    #[arg(long, global = true, value_name = "SCHEME:CREDENTIALS")]
    pub(crate) auth: Vec<String>,
    /// A file of credentials, one SCHEME:CREDENTIALS a line [env: ZK_AUTH_FILE]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) auth_file: Option<PathBuf>,
    /// Who may touch what we make [env: ZK_ACL]
    #[arg(long, global = true, value_enum)]
    pub(crate) acl: Option<WhoMay>,
    /// Connect over TLS, to servers whose certificates the system trusts [env: ZK_TLS]
    #[arg(long, global = true)]
    pub(crate) tls: bool,
    /// Connect over TLS, to servers whose certificates this CA has signed (PEM) [env: ZK_TLS_CA]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) tls_ca: Option<PathBuf>,
    /// The certificate to show to the servers (PEM); goes with --tls-key [env: ZK_TLS_CERTIFICATE]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// The private key of the certificate (PEM) [env: ZK_TLS_KEY]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) tls_key: Option<PathBuf>,
    /// The name in the servers' certificates, if it is not their host name [env: ZK_TLS_SERVER_NAME]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) tls_server_name: Option<String>,
    /// Whose node names to use. All programs that share a lock must agree.
    #[arg(long, global = true, value_enum, default_value_t = Dialect::Curator)]
    pub(crate) dialect: Dialect,
    /// Say on stderr what the library does; twice for more.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// Who may touch what we make.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhoMay {
    /// Everybody
    Open,
    /// Who connects with the same credentials
    CreatorAll,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Apache Curator's (Java), go-zookeeper's, and this library's own
    Curator,
    /// kazoo's (Python)
    Kazoo,
}

impl From<Dialect> for zklock::Dialect {
    fn from(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Curator => Self::Curator,
            Dialect::Kazoo => Self::Kazoo,
        }
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    Run(Run),
    Hold(Hold),
    Ls(Ls),
    Who(Who),
    Watch(Watch),
    Jobs(Jobs),
    Revoke(Revoke),
    Break(Break),
    Gc(Gc),
    Doctor(Doctor),
    #[cfg(unix)]
    TestServer(TestServer),
    /// Print shell completions.
    Completions {
        /// For which shell.
        shell: Shell,
    },
    /// Print the man page.
    Man {
        /// Write a page for each verb into this folder instead.
        #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
        dir: Option<std::path::PathBuf>,
    },
}

/// Serve a ZooKeeper in memory, for tests.
///
/// It prints what clients connect to when they can, and serves until a signal ends it. It listens on
/// the loopback interface alone, keeps nothing on disk, and has no TLS or SASL.
#[derive(Args, Debug)]
pub(crate) struct TestServer {
    /// The port to listen on; 0 is a free one. Of several servers the first has it, and the others the
    /// next ones.
    #[arg(long, value_name = "PORT", default_value_t = 2181)]
    pub(crate) port: u16,
    /// How many servers, of which one leads. They share one process: no signal kills one of them.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..100))]
    pub(crate) members: u8,
    /// The server's unit of time. It grants session timeouts from 2 of it to 20, and at least to 60s.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "100ms")]
    pub(crate) tick: Duration,
}

/// Run a command while holding a lock.
///
/// The command runs in its own process group, without a shell between. INT, TERM, HUP, QUIT, USR1
/// and USR2 are passed on to the group. If the lock is lost, the command and all its descendants,
/// whatever group or session they are of, are stopped before anybody else can have the lock. When
/// the command ends, the lock is held until all its descendants have ended, or been ended.
///
/// The command finds ZKLOCK_PATH, ZKLOCK_NODE and ZKLOCK_SESSION in its environment, and, if the
/// lock excludes everybody, ZKLOCK_FENCING_TOKEN: a number that rises from holder to holder, for
/// stores that check it.
#[derive(Args, Debug)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) wanted: Wanted,
    #[command(flatten)]
    pub(crate) once: Once,
    /// How long the command has to end by itself, before it is killed.
    ///
    /// When the lock is about to be lost, the command is sent --signal this long before. At most a
    /// quarter of the session timeout. Defaults to 3s, or a sixth of the timeout if that is less.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) kill_after: Option<Duration>,
    /// The signal that ends the command: a name or a number.
    #[arg(long, value_name = "SIGNAL", value_parser = signal, default_value = "TERM")]
    pub(crate) signal: i32,
    /// Hold the lock for at least this long, even if the command ends before.
    ///
    /// For short jobs that several machines start by clocks that differ.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "0s", hide_default_value = true)]
    pub(crate) at_least: Duration,
    /// Stop the command as if the lock was lost when it has run for this long.
    ///
    /// It is sent --signal the time of --kill-after before, and killed at the end. Status 79.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) at_most: Option<Duration>,
    /// Give the lock back when the command has ended, and let what it started run on.
    ///
    /// For commands that start daemons. These run beside the next holder: the lock protects nothing
    /// of what they do. While the command runs they are stopped with it.
    #[arg(long)]
    pub(crate) leave_children: bool,
    /// Make no control group for the command, also where one can be made.
    #[arg(long)]
    pub(crate) no_cgroup: bool,
    /// Write one line of JSON to this descriptor that tells our status from the command's.
    #[arg(long, value_name = "N")]
    pub(crate) status_fd: Option<i32>,
    /// Leave ZK_AUTH, ZK_SASL_USER and ZK_SASL_PASSWORD in the command's environment.
    #[arg(long)]
    pub(crate) keep_env: bool,
    /// When the command has ended, or the lock was lost, wait for the lock and run it again, after a
    /// pause (1s if none is said), until a signal ends us.
    #[arg(
        long,
        value_name = "PAUSE",
        value_parser = duration,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1s",
        conflicts_with = "at_once"
    )]
    pub(crate) again: Option<Duration>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Whether the command is a job that is done once, over all machines that run it so.
#[derive(Args, Debug)]
#[command(next_help_heading = "Once")]
pub(crate) struct Once {
    /// Run the command once for each period of this length, by the servers' clock: 1d is a day of
    /// UTC. If it was done already, say so and end with 0.
    ///
    /// The record of what was done is in the lock's folder; `zklock jobs` shows it.
    #[arg(long, value_name = "LENGTH", value_parser = duration, conflicts_with_all = ["kind", "once"])]
    pub(crate) once_per: Option<Duration>,
    /// Run the command once for this key, such as a date or a batch. If it was done already, say so
    /// and end with 0.
    #[arg(long, value_name = "KEY", conflicts_with = "kind")]
    pub(crate) once: Option<String>,
    /// Run the command for so many periods that were missed, too, the oldest first.
    #[arg(
        long,
        value_name = "N",
        requires = "once_per",
        default_value = "0",
        hide_default_value = true
    )]
    pub(crate) catch_up: u32,
    /// What follows a command that failed: any status but 0, or a signal.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "again")]
    pub(crate) after_failure: Rerun,
    /// What follows a command of which nobody knows how it ended, as its machine died or lost the lock.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "when-told")]
    pub(crate) after_death: Rerun,
}

/// Whether it is run again in the same period, or for the same key.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rerun {
    /// Whoever comes next runs it
    Again,
    /// It is an error (65) until somebody says `zklock jobs --allow-again`
    WhenTold,
}

impl From<Rerun> for zklock::Rerun {
    fn from(rerun: Rerun) -> Self {
        match rerun {
            Rerun::Again => Self::Again,
            Rerun::WhenTold => Self::WhenTold,
        }
    }
}

/// Which lock, and for how long to wait for it.
#[derive(Args, Debug)]
pub(crate) struct Wanted {
    /// Do not wait: end with 75 if somebody else has the lock.
    #[arg(long = "try", conflicts_with = "timeout")]
    pub(crate) at_once: bool,
    /// Wait for at most this long, connecting included, then end with 75; 69 if no server was
    /// reached until then.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// End with this instead of 75 if somebody else has the lock.
    #[arg(long, value_name = "STATUS")]
    pub(crate) busy_status: Option<u8>,
    /// Say nothing if somebody else has the lock.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Share the lock with others who run with --shared; see --write.
    #[arg(long, group = "kind")]
    pub(crate) shared: bool,
    /// Exclude those who run with --shared. (Without either, the command does not exclude those with --shared.)
    #[arg(long, group = "kind")]
    pub(crate) write: bool,
    /// Run together with at most N - 1 others who run with --semaphore N.
    #[arg(long, value_name = "N", group = "kind", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) semaphore: Option<u32>,
    /// The lock's path.
    pub(crate) path: String,
}

/// Hold a lock for as long as the input lasts: for scripts that want sections.
///
/// When the lock is ours, a line says so on standard output: `held`, the fencing token (or `-` where
/// there is none), and the path of our node. It is given back when the input ends. `asked` is printed
/// when somebody asks for the lock, `doubtful` when it may be lost soon, and `lost` when it is; then
/// the status is 79. Nobody stops the script: it must look.
#[derive(Args, Debug)]
pub(crate) struct Hold {
    #[command(flatten)]
    pub(crate) wanted: Wanted,
}

/// List the locks at and under a path that are held or waited for.
#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// Look into the whole tree.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Print one JSON array.
    #[arg(long)]
    pub(crate) json: bool,
    /// Where to begin; / for everything.
    #[arg(default_value = "/")]
    pub(crate) path: String,
}

/// Show who holds a lock and who waits for it, in order.
#[derive(Args, Debug)]
pub(crate) struct Who {
    /// Print one JSON array.
    #[arg(long)]
    pub(crate) json: bool,
    /// The lock's path.
    pub(crate) path: String,
}

/// Show who holds a lock and who waits, and then a line for each change, until interrupted.
#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// How often to look, at least 10ms; a participant that comes and goes between two looks is not
    /// seen.
    #[arg(long, value_name = "DURATION", value_parser = interval, default_value = "1s")]
    pub(crate) every: Duration,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// The lock's path.
    pub(crate) path: String,
}

/// Show which runs of a job there were: of `run --once-per` and `run --once`.
///
/// Of a path that is no job, those right below it are shown, each with its last run.
#[derive(Args, Debug)]
pub(crate) struct Jobs {
    /// Print one JSON array.
    #[arg(long)]
    pub(crate) json: bool,
    /// Let the last run be run again, which has failed or died, once.
    #[arg(long)]
    pub(crate) allow_again: bool,
    /// Of which key the last run is meant; for a job that is done for each key.
    #[arg(long, value_name = "KEY", requires = "allow_again")]
    pub(crate) key: Option<String>,
    /// Set the record back to the servers' clock, if it is ahead of it. What was run early, by a wrong
    /// clock, will run again when its period comes.
    #[arg(long, conflicts_with = "allow_again")]
    pub(crate) reset: bool,
    /// The job's path.
    pub(crate) path: String,
}

/// Ask the holder of a lock to give it back. Whether it does is its decision.
///
/// `zklock run` sends its --signal to the command. Programs hear of it if they built the lock to be
/// revocable.
#[derive(Args, Debug)]
pub(crate) struct Revoke {
    /// The lock's path.
    pub(crate) path: String,
}

/// Delete a contender's node by force: the next in the queue gets the lock at once.
///
/// The holder learns of it, but until it does, two holders may be active. Ask with `revoke` first.
#[derive(Args, Debug)]
pub(crate) struct Break {
    /// The lock's path.
    pub(crate) path: String,
    /// Whose node, by the name that `who` shows.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: String,
    /// Do not ask on a terminal.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Remove the folders of locks that nobody uses any more, in the tree below a path.
///
/// Without --force it only lists them. Safe while locks are in use: the next program that needs a
/// folder makes it again. (A lock object of kazoo makes its folder only once: use --force only
/// where no such objects are in use.)
#[derive(Args, Debug)]
pub(crate) struct Gc {
    /// Remove them.
    #[arg(long)]
    pub(crate) force: bool,
    /// The path below which to look; the path itself stays.
    pub(crate) root: String,
}

/// Look at the connection to ZooKeeper and at the servers, and say what may go wrong.
///
/// Takes a lock of its own several times to measure it.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// The lock to measure with.
    #[arg(long, default_value = "/zklock-doctor")]
    pub(crate) path: String,
}

fn duration(text: &str) -> Result<Duration, String> {
    /// A century: what is longer is a mistake, and no clock could count it.
    const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    let parsed = humantime::parse_duration(text);
    let parsed = parsed.map_err(|error| format!("{error}; write 500ms, 4s or 10m"))?;
    if parsed > LONGEST {
        return Err("it is longer than a century".to_owned());
    }
    Ok(parsed)
}

/// Between two looks: not without a pause.
fn interval(text: &str) -> Result<Duration, String> {
    const SHORTEST: Duration = Duration::from_millis(10);
    match duration(text)? {
        interval if interval < SHORTEST => Err("it must be 10ms or more".to_owned()),
        interval => Ok(interval),
    }
}

/// A signal by name, with or without `SIG`, or by number.
fn signal(text: &str) -> Result<i32, String> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let found = (1..32).find(|signal| {
        text.parse() == Ok(*signal) || signal_name(*signal).is_some_and(|known| known == name)
    });
    found.ok_or_else(|| "no such signal; write TERM, SIGTERM or 15".to_owned())
}

/// Without `SIG`.
#[cfg(unix)]
pub(crate) fn signal_name(signal: i32) -> Option<&'static str> {
    signal_hook::low_level::signal_name(signal)?.strip_prefix("SIG")
}

/// Nothing is run here; that is said when all of the command line has been read, defaults included.
#[cfg(not(unix))]
pub(crate) fn signal_name(signal: i32) -> Option<&'static str> {
    (signal == 15).then_some("TERM")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn is_a_sound_command_line() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn signals_have_names_and_numbers() {
        for text in ["TERM", "sigterm", "SIGTERM", "15"] {
            assert_eq!(signal(text), Ok(15), "{text}");
        }
        for text in ["", "0", "64", "NOSUCH", "-15", "SIG15"] {
            assert!(signal(text).is_err(), "{text}");
        }
    }

    #[test]
    fn options_stand_before_or_after_the_verb() {
        for line in [
            "zklock --servers a:1 who /l",
            "zklock who --servers a:1 /l",
            "zklock who /l --servers a:1",
        ] {
            let parsed = Arguments::try_parse_from(line.split(' ')).expect(line);
            assert_eq!(parsed.connection.servers.as_deref(), Some("a:1"));
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("10m"), Ok(Duration::from_secs(600)));
        assert!(duration("4").is_err());
        assert!(duration("-4s").is_err());
        assert!(duration("101years").is_err());
        assert!(interval("0s").is_err());
    }
}
