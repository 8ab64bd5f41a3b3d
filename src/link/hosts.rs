//! Where the ensemble is: the connect string, and the addresses behind its names.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};

/// ZooKeeper's client port.
const DEFAULT_PORT: u16 = 2181;

/// One entry of the connect string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// `host:port,host:port/chroot`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectString {
    pub(crate) hosts: Vec<HostPort>,
    /// `None` for none; never `/`.
    pub(crate) chroot: Option<String>,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for ConnectString {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some((scheme, rest)) = text.split_once("://") {
            return Err(format!(
                "connect string {text:?}: it is no URL; leave out \"{scheme}://\", as in {rest:?}"
            ));
        }
        let (servers, chroot) = match text.find('/') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        let chroot = match chroot {
            "" | "/" => None,
            chroot => {
                crate::znode::path::check(chroot)
                    .map_err(|why| format!("connect string {text:?}: chroot {chroot}: {why}"))?;
                Some(chroot.to_owned())
            }
        };
        let hosts = servers
            .split(',')
            .map(|entry| entry.trim().parse())
            .collect::<Result<_, String>>()
            .map_err(|why| format!("connect string {text:?}: {why}"))?;
        Ok(Self { hosts, chroot })
    }
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(entry: &str) -> Result<Self, String> {
        let servers: Vec<_> = entry.split_whitespace().collect();
        if servers.len() > 1 {
            let listed = servers.join(",");
            return Err(format!(
                "a space in {entry:?}; servers are separated by commas: {listed:?}"
            ));
        }
        let (host, port) = if let Some(rest) = entry.strip_prefix('[') {
            let (host, rest) = rest
                .split_once(']')
                .ok_or_else(|| format!("\"]\" is missing in {entry:?}"))?;
            // The zone of a link-local address, `%eth0`, is the resolver's business.
            let (address, _zone) = host.split_once('%').unwrap_or((host, ""));
            if address.parse::<Ipv6Addr>().is_err() {
                return Err(format!("{host:?} in {entry:?} is no IPv6 address"));
            }
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err(format!("{rest:?} after the address in {entry:?}")),
            }
        } else if entry.matches(':').count() > 1 {
            return Err(format!(
                "{entry:?}: an IPv6 address needs brackets, as in \"[::1]:2181\""
            ));
        } else {
            match entry.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (entry, None),
            }
        };
        if host.is_empty() {
            return Err(format!("a host is missing in {entry:?}"));
        }
        let is_odd = |c: char| c.is_control() || "[]@\\".contains(c);
        if let Some(odd) = host.chars().find(|c| is_odd(*c)) {
            return Err(format!("{odd:?} in the host of {entry:?}"));
        }
        Ok(Self {
            host: host.to_owned(),
            port: port.map_or(Ok(DEFAULT_PORT), |port| parse_port(port, entry))?,
        })
    }
}

/// Digits only: `u16`'s own parser takes a plus sign.
fn parse_port(port: &str, entry: &str) -> Result<u16, String> {
    let digits = port.bytes().all(|c| c.is_ascii_digit());
    match port.parse() {
        Ok(number) if digits && number != 0 => Ok(number),
        _ => Err(format!("{port:?} in {entry:?} is not a port")),
    }
}

impl HostPort {
    /// The same text for the same host and port, however they were written.
    pub(crate) fn canonical(&self) -> String {
        let host = match self.host.parse::<IpAddr>() {
            Ok(address) => address.to_string(),
            Err(_) => self.host.trim_end_matches('.').to_ascii_lowercase(),
        };
        let port = self.port;
        Self { host, port }.to_string()
    }

    /// Asks for all addresses of the host.
    ///
    /// The system's resolver cannot be interrupted, so a thread of its own asks it, which is left
    /// behind if it takes too long.
    pub(super) fn resolve(&self) -> Resolving {
        let (sender, receiver) = bounded(1);
        if let Ok(address) = self.host.parse::<IpAddr>() {
            let _ = sender.send(Ok(vec![SocketAddr::new(address, self.port)]));
        } else {
            let asked = (self.host.clone(), self.port);
            let answer = sender.clone();
            let started = std::thread::Builder::new()
                .name("zklock-resolve".into())
                .spawn(move || {
                    let found = asked.to_socket_addrs();
                    let found = found.map(Iterator::collect);
                    let _ = answer.send(found.map_err(|error| error.to_string()));
                });
            if let Err(error) = started {
                let _ = sender.send(Err(error.to_string()));
            }
        }
        Resolving(receiver)
    }
}

/// A question to the resolver.
pub(super) struct Resolving(Receiver<Result<Vec<SocketAddr>, String>>);

impl Resolving {
    /// The answer, if it comes before `deadline`. It comes once.
    pub(super) fn wait(&self, deadline: Instant) -> Option<Result<Vec<SocketAddr>, String>> {
        match self.0.recv_deadline(deadline) {
            Ok(Ok(found)) if found.is_empty() => Some(Err("the name has no address".into())),
            Ok(Ok(found)) => Some(Ok(found)),
            Ok(Err(why)) => Some(Err(format!("cannot resolve the name: {why}"))),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err("the resolver failed".into())),
        }
    }

    #[cfg(all(test, not(shuttle)))]
    pub(super) fn never() -> (
        crossbeam_channel::Sender<Result<Vec<SocketAddr>, String>>,
        Self,
    ) {
        let (sender, receiver) = bounded(1);
        (sender, Self(receiver))
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConnectString, String> {
        text.parse()
    }

    #[test]
    fn good_ones() {
        let string = parse("a:1, b , [::1]:3,10.0.0.1/x/y").expect("good");
        let hosts: Vec<_> = string.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["a:1", "b:2181", "[::1]:3", "10.0.0.1:2181"]);
        assert_eq!(string.chroot.as_deref(), Some("/x/y"));
        assert_eq!(parse("a/").expect("good").chroot, None);
        assert_eq!(parse("[::1]").expect("good").hosts[0].port, DEFAULT_PORT);
        let spaced = parse("  a:1 ,[fe80::1%eth0] \n").expect("good");
        assert_eq!(spaced.hosts[1].to_string(), "[fe80::1%eth0]:2181");
        assert_eq!(spaced.chroot, None);
        let spaced = parse(" a/x \n").expect("good");
        assert_eq!(spaced.chroot.as_deref(), Some("/x"));
    }

    #[test]
    fn bad_ones_say_why() {
        for (text, why) in [
            ("", "host is missing"),
            (",a", "host is missing"),
            ("a,", "host is missing"),
            (":2181", "host is missing"),
            ("/a", "host is missing"),
            ("a b", "a,b"),
            ("a:1 b:2 c:3", "commas"),
            ("a:1, b:2 c:3/x", "b:2,c:3"),
            ("a\u{a0}b", "a,b"),
            ("http://a:2181", "leave out \"http://\", as in \"a:2181\""),
            ("zk://a:2181,b/x", "no URL"),
            ("user@a", "'@'"),
            ("a]", "']'"),
            ("a\\b", "'\\\\' in the host"),
            ("a\u{1}b", "'\\u{1}' in the host"),
            ("a, ", "host is missing"),
            ("[a]:1", "no IPv6 address"),
            ("[127.0.0.1]", "no IPv6 address"),
            ("a:", "not a port"),
            ("a:+1", "not a port"),
            ("a:-1", "not a port"),
            ("a:x", "not a port"),
            ("a:0", "not a port"),
            ("a:65536", "not a port"),
            ("::1:2181", "brackets"),
            ("[::1", "missing"),
            ("[::1]x", "after the address"),
            ("a/x/", "end with"),
            ("a/x//y", "between the slashes"),
            ("a/../b", "relative"),
            ("a/.", "relative"),
            ("a/x\u{1}", "U+0001"),
            ("a//", "between the slashes"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn addresses_need_no_resolver() {
        let host: HostPort = "[::1]:7".parse().expect("good");
        let found = host.resolve().wait(Instant::now()).expect("at once");
        let found = found.expect("an address");
        assert_eq!(found, ["[::1]:7".parse().expect("good")]);
    }
}
