//! `zklock doctor`: the way to ZooKeeper, measured, and what would go wrong on it.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use zklock::{Client, Mutex};

use crate::arguments::{Connection, Doctor};
use crate::status::Failure;

/// For one server to answer who it is.
const ANSWER: Duration = Duration::from_secs(2);
const ROUND_TRIPS: usize = 50;
const CYCLES: usize = 20;

/// What a server said of itself.
struct Server {
    host: String,
    answer: Result<Answer, String>,
}

struct Answer {
    version: String,
    mode: String,
}

pub(crate) fn doctor(connection: &Connection, arguments: &Doctor) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let mut findings = Vec::new();
    let servers: Vec<_> = hosts(connection.servers()?).into_iter().map(ask).collect();
    for server in &servers {
        match &server.answer {
            Ok(answer) => writeln!(
                out,
                "server {}: ZooKeeper {}, {}",
                server.host, answer.version, answer.mode
            )?,
            Err(why) => writeln!(out, "server {}: {why}", server.host)?,
        }
    }
    findings.extend(judge_servers(&servers));
    let begun = Instant::now();
    let client = connection.connect()?;
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
    for finding in findings {
        writeln!(out, "! {finding}")?;
    }
    client.close();
    Ok(())
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

fn ask(host: String) -> Server {
    let answer = srvr(&host).map_err(|error| format!("no answer: {error}"));
    Server {
        answer: answer.and_then(|text| {
            parse(&text).ok_or_else(|| "reached, but it does not answer srvr".to_owned())
        }),
        host,
    }
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
        version: version.split(['-', ',']).next()?.to_owned(),
        mode: field("Mode: ")?.to_owned(),
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
            "{silent} of {} servers did not say what they are: down, out of reach, or with srvr \
             left out of 4lw.commands.whitelist",
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
    let mut versions: Vec<_> = answered.iter().map(|answer| &answer.version).collect();
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
        assert_eq!((&*answer.version, &*answer.mode), ("3.8.0", "leader"));
        assert!(parse("srvr is not executed because it is not in the whitelist.\n").is_none());
    }
}
