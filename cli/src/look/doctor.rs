//! `zklock doctor`: the way to ZooKeeper, measured, and what would go wrong on it.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use zklock::{Client, Mutex};

use crate::arguments::Doctor;
use crate::connect::Connection;
use crate::status::Failure;

/// For one server to answer who it is.
const ANSWER: Duration = Duration::from_secs(2);
/// The servers' `tickTime` where nobody has set it.
const USUAL_TICK: Duration = Duration::from_secs(2);
const ROUND_TRIPS: usize = 50;
const CYCLES: usize = 20;

/// What a server said of itself.
struct Server {
    host: String,
    answer: Result<Answer, String>,
}

struct Answer {
    /// Not told over TLS: the word that asks for it is a plain one.
    version: Option<String>,
    mode: Option<String>,
    /// The servers that the ensemble's own list has as observers.
    observers: Vec<String>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.version, &self.mode) {
            (Some(version), Some(mode)) => write!(f, "ZooKeeper {version}, {mode}"),
            _ => f.write_str("serves over TLS (which does not tell its version and role)"),
        }
    }
}

pub(crate) fn doctor(connection: &Connection, arguments: &Doctor) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let mut findings = Vec::new();
    let servers: Vec<_> = hosts(connection.servers())
        .into_iter()
        .map(|host| ask(connection, host))
        .collect();
    for server in &servers {
        match &server.answer {
            Ok(answer) => writeln!(out, "server {}: {answer}", server.host)?,
            Err(why) => writeln!(out, "server {}: {why}", server.host)?,
        }
    }
    findings.extend(judge_servers(&servers));
    let begun = Instant::now();
    let client = match connection.connect() {
        Ok(client) => client,
        Err(failure) => {
            // They may say why.
            tell(&mut out, &findings)?;
            return Err(failure);
        }
    };
    writeln!(
        out,
        "connected in {}, session 0x{:x}",
        shown(begun.elapsed()),
        client.session_id().unwrap_or_default()
    )?;
    let granted = client.session_timeout().unwrap_or_default();
    writeln!(
        out,
        "session timeout: {} (asked for {})",
        humantime::format_duration(granted),
        humantime::format_duration(connection.session_timeout)
    )?;
    let round_trips = measure(ROUND_TRIPS, || client.children("/").map(drop))?;
    writeln!(out, "round trip: {}", summary(&round_trips))?;
    let cycles = measure_cycles(&client, connection, arguments)?;
    writeln!(
        out,
        "lock and unlock {}: {}",
        arguments.path,
        summary(&cycles)
    )?;
    findings.extend(judge_times(connection, granted, &round_trips, &cycles));
    if findings.is_empty() {
        writeln!(out, "no problems found")?;
    }
    tell(&mut out, &findings)?;
    client.close();
    Ok(())
}

fn tell(out: &mut impl Write, findings: &[String]) -> io::Result<()> {
    findings
        .iter()
        .try_for_each(|finding| writeln!(out, "! {finding}"))
}

fn measure_cycles(
    client: &Client,
    connection: &Connection,
    arguments: &Doctor,
) -> Result<Vec<Duration>, Failure> {
    let lock = Mutex::builder(client, &arguments.path)
        .dialect(connection.dialect.into())
        .build()?;
    // Makes the folder.
    lock.lock()?.unlock()?;
    Ok(measure(CYCLES, || lock.lock()?.unlock())?)
}

/// The times, sorted.
fn measure(
    times: usize,
    mut what: impl FnMut() -> zklock::Result<()>,
) -> zklock::Result<Vec<Duration>> {
    let mut taken = Vec::with_capacity(times);
    for _ in 0..times {
        let begun = Instant::now();
        what()?;
        taken.push(begun.elapsed());
    }
    taken.sort_unstable();
    Ok(taken)
}

fn summary(sorted: &[Duration]) -> String {
    let at = |part: usize| shown(sorted[(sorted.len() - 1) * part / 100]);
    format!("median {}, longest {} of {}", at(50), at(100), sorted.len())
}

fn shown(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1000.0)
}

/// The servers of a connect string, each with a port.
fn hosts(servers: &str) -> Vec<String> {
    let servers = servers.split('/').next().unwrap_or_default();
    let servers = servers.split(',').map(str::trim);
    servers
        .filter(|server| !server.is_empty())
        .map(|server| {
            let last = server.rsplit(']').next().unwrap_or_default();
            if last.contains(':') {
                server.to_owned()
            } else {
                format!("{server}:2181")
            }
        })
        .collect()
}

/// By the plain word `srvr`; over TLS by a session of its own.
fn ask(connection: &Connection, host: String) -> Server {
    let answer = if connection.speaks_tls() {
        ask_over_tls(connection, &host)
    } else {
        let answer = srvr(&host).map_err(|error| match error.kind() {
            // What the system says of a time that ran out.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("no answer within {}", humantime::format_duration(ANSWER))
            }
            _ => format!("no answer: {error}"),
        });
        answer.and_then(|text| {
            parse(&text).ok_or_else(|| "reached, but it does not answer srvr".to_owned())
        })
    };
    Server { host, answer }
}

fn ask_over_tls(connection: &Connection, host: &str) -> Result<Answer, String> {
    let builder = connection.builder_for(host);
    let builder = builder.map_err(|failure| failure.message)?;
    let client = builder.connect_timeout(ANSWER).connect();
    let client = client.map_err(|error| Failure::from(error).message)?;
    let list = client.read("/zookeeper/config").ok().flatten();
    let list = list.map(|(list, _)| String::from_utf8_lossy(&list).into_owned());
    client.close();
    Ok(Answer {
        version: None,
        mode: None,
        observers: observers(list.as_deref().unwrap_or_default()),
    })
}

/// The observers in the ensemble's list of its servers: `server.4=host:2888:3888:observer;2181`.
fn observers(list: &str) -> Vec<String> {
    let servers = list.lines().filter_map(|line| line.strip_prefix("server."));
    servers
        .filter_map(|server| server.split_once('='))
        .filter(|(_, place)| {
            let role = place.split(';').next().unwrap_or_default();
            role.ends_with(":observer")
        })
        .map(|(_, place)| place.split(':').next().unwrap_or_default().to_owned())
        .collect()
}

fn srvr(host: &str) -> io::Result<String> {
    let mut error = io::ErrorKind::NotFound.into();
    for address in host.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, ANSWER) {
            Ok(mut stream) => {
                stream.set_read_timeout(Some(ANSWER))?;
                stream.set_write_timeout(Some(ANSWER))?;
                stream.write_all(b"srvr")?;
                let mut answer = String::new();
                // It closes the connection after its answer, which is short.
                stream.take(64 * 1024).read_to_string(&mut answer)?;
                return Ok(answer);
            }
            Err(why) => error = why,
        }
    }
    Err(error)
}

fn parse(answer: &str) -> Option<Answer> {
    let field = |name: &str| answer.lines().find_map(|line| line.strip_prefix(name));
    let version = field("Zookeeper version: ")?;
    Some(Answer {
        version: Some(version.split(['-', ',']).next()?.to_owned()),
        mode: Some(field("Mode: ")?.to_owned()),
        observers: Vec::new(),
    })
}

fn judge_servers(servers: &[Server]) -> Vec<String> {
    let mut findings = Vec::new();
    let answered: Vec<_> = servers
        .iter()
        .filter_map(|server| server.answer.as_ref().ok())
        .collect();
    let silent = servers.len() - answered.len();
    if silent > 0 {
        findings.push(format!(
            "{silent} of {} servers did not say what they are: down, out of reach, with srvr left \
             out of 4lw.commands.whitelist, or at a port for TLS",
            servers.len()
        ));
    }
    if servers.len() == 1 {
        findings.push(
            "one server is named: when it is down, no lock can be taken; name all of them"
                .to_owned(),
        );
    } else if servers.len().is_multiple_of(2) {
        findings.push(format!(
            "{} servers survive no more failures than {} do",
            servers.len(),
            servers.len() - 1
        ));
    }
    findings.extend(judge_observers(servers));
    let mut versions: Vec<_> = answered
        .iter()
        .filter_map(|answer| answer.version.as_ref())
        .collect();
    versions.sort_unstable();
    versions.dedup();
    if versions.len() > 1 {
        findings.push(format!("servers of different versions: {versions:?}"));
    }
    if versions.iter().any(|version| version.as_str() == "3.8.0") {
        findings.push(
            "ZooKeeper 3.8.0 can leave an answer waiting for the next request \
             (ZOOKEEPER-4537); 3.8.1 does not"
                .to_owned(),
        );
    }
    findings
}

/// What an observer tells of a session may have gone to a follower, and no further: then the lease
/// rests on nothing.
fn judge_observers(servers: &[Server]) -> Vec<String> {
    let answered = servers
        .iter()
        .filter_map(|server| Some((&server.host, server.answer.as_ref().ok()?)));
    let harm = "gets its data from a follower (observerMasterPort), a lock can look held that is lost; \
                name voting servers";
    let said = answered
        .clone()
        .filter(|(_, answer)| answer.mode.as_deref() == Some("observer"))
        .map(|(host, _)| format!("{host} is an observer: if it {harm}"));
    // By the names that the servers have for each other.
    let listed = answered
        .flat_map(|(_, answer)| answer.observers.clone())
        .map(|host| {
            format!(
                "{host} is an observer, as the ensemble's list has it: if it is one of the servers \
                 named, and {harm}"
            )
        });
    let mut findings: Vec<_> = said.chain(listed).collect();
    findings.sort_unstable();
    findings.dedup();
    findings
}

fn judge_times(
    connection: &Connection,
    granted: Duration,
    round_trips: &[Duration],
    cycles: &[Duration],
) -> Vec<String> {
    let mut findings = Vec::new();
    if granted != connection.session_timeout {
        findings.push(format!(
            "the servers do not grant the session timeout that was asked for (see \
             minSessionTimeout and maxSessionTimeout): a holder that dies keeps its lock for {}",
            humantime::format_duration(granted)
        ));
    }
    let tick = connection.tick_time();
    if granted < tick.unwrap_or(USUAL_TICK) * 2 {
        let granted = humantime::format_duration(granted);
        findings.push(match tick {
            Some(tick) => format!(
                "the session timeout, {granted}, is less than two ticks of {}: little trouble is \
                 enough to lose locks; ask for a longer --session-timeout",
                humantime::format_duration(tick)
            ),
            None => format!(
                "the session timeout, {granted}, is less than two of the usual ticks: with such \
                 ticks a holder may hear of a loss too late; say the servers' tickTime by \
                 --tick-time (ZK_TICK_TIME_MS)"
            ),
        });
    }
    let longest = |times: &[Duration]| times.last().copied().unwrap_or_default();
    let slowest = longest(round_trips).max(longest(cycles));
    // What goes unanswered for a sixth of it makes a client look for another server.
    if slowest > granted / 6 {
        findings.push(format!(
            "an answer took {}, which is more than a sixth of the session timeout: locks will be \
             doubted or lost; ask for a longer --session-timeout",
            shown(slowest)
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_a_port() {
        assert_eq!(
            hosts("a, b:1,[::1],[::1]:2/chroot:3"),
            ["a:2181", "b:1", "[::1]:2181", "[::1]:2"]
        );
    }

    #[test]
    fn reads_what_a_server_says_of_itself() {
        let said = "Zookeeper version: 3.8.0-${mvngit.commit.id}, built on 2022\nMode: leader\n";
        let answer = parse(said).expect("complete");
        assert_eq!(answer.to_string(), "ZooKeeper 3.8.0, leader");
        assert!(parse("srvr is not executed because it is not in the whitelist.\n").is_none());
    }

    #[test]
    fn observers_are_warned_of_however_they_are_found() {
        let list = "server.1=a:2888:3888:participant;0.0.0.0:2181\n\
            server.2=b:2888:3888:observer;0.0.0.0:2181\nversion=0";
        assert_eq!(observers(list), ["b"]);
        assert_eq!(observers(""), [""; 0]);
        let said = "Zookeeper version: 3.9.0, built\nMode: observer\n";
        let servers = [
            Server {
                host: "c:2181".to_owned(),
                answer: Ok(parse(said).expect("complete")),
            },
            Server {
                host: "d:2281".to_owned(),
                answer: Ok(Answer {
                    version: None,
                    mode: None,
                    observers: observers(list),
                }),
            },
        ];
        let findings = judge_observers(&servers);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].starts_with("b is an observer"));
        assert!(findings[1].starts_with("c:2181 is an observer"));
    }
}
