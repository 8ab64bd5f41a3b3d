//! Where the ensemble is: the connect string, and the addresses behind its names.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Instant;

use crossbeam_channel::{Receiver, bounded};

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
        let (servers, chroot) = match text.find('/') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        let chroot = match chroot {
            "" | "/" => None,
            chroot => {
                crate::path::check(chroot)
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
        let (host, port) = if let Some(rest) = entry.strip_prefix('[') {
            let (host, rest) = rest
                .split_once(']')
                .ok_or_else(|| format!("\"]\" is missing in {entry:?}"))?;
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err(format!("{rest:?} after the address in {entry:?}")),
            }
        } else if entry.matches(':').count() > 1 {
            return Err(format!("an IPv6 address needs brackets: \"[{entry}]\""));
        } else {
            match entry.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (entry, None),
            }
        };
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(format!("a host is missing or has spaces in {entry:?}"));
        }
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => match port.parse() {
                Ok(port) if port != 0 => port,
                _ => return Err(format!("{port:?} in {entry:?} is not a port")),
            },
        };
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl HostPort {
    /// All addresses of the host, or why there are none by `deadline`.
    ///
    /// Asking the system's resolver cannot be interrupted, so it is done by a thread of its own,
    /// which is left behind if it takes too long.
    pub(super) fn resolve(&self) -> Resolving {
        let (sender, receiver) = bounded(1);
        if let Ok(address) = self.host.parse::<IpAddr>() {
            let _ = sender.send(Ok(vec![SocketAddr::new(address, self.port)]));
        } else {
            let host = (self.host.clone(), self.port);
            let started = std::thread::Builder::new()
                .name("zklock-resolve".into())
                .spawn({
                    let sender = sender.clone();
                    move || {
                        let found = host.to_socket_addrs();
                        let _ =
                            sender.send(found.map(Iterator::collect).map_err(|e| e.to_string()));
                    }
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
    pub(super) fn wait(&self, deadline: Instant) -> Result<Vec<SocketAddr>, String> {
        match self.0.recv_deadline(deadline) {
            Ok(Ok(found)) if found.is_empty() => Err("the name has no address".into()),
            Ok(Ok(found)) => Ok(found),
            Ok(Err(why)) => Err(format!("cannot resolve the name: {why}")),
            Err(_) => Err("the name was not resolved in time".into()),
        }
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
    }

    #[test]
    fn bad_ones_say_why() {
        for (text, why) in [
            ("", "host is missing"),
            (",a", "host is missing"),
            ("a,", "host is missing"),
            (":2181", "host is missing"),
            ("a b", "spaces"),
            ("a:x", "not a port"),
            ("a:0", "not a port"),
            ("a:65536", "not a port"),
            ("::1:2181", "brackets"),
            ("[::1", "missing"),
            ("[::1]x", "after the address"),
            ("a/x/", "end with"),
            ("a/x//y", "between the slashes"),
            ("a/../b", "relative"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn addresses_need_no_resolver() {
        let host: HostPort = "[::1]:7".parse().expect("good");
        let found = host.resolve().wait(Instant::now()).expect("at once");
        assert_eq!(found, ["[::1]:7".parse().expect("good")]);
    }
}
