//! What the servers say that they had to do.

use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::Sub;
use std::time::Duration;

use testbed::four_letter;

const ANSWER: Duration = Duration::from_secs(10);
/// Every watch that fired, by what fired it.
const FIRED: [&str; 4] = [
    "zk_sum_node_created_watch_count",
    "zk_sum_node_deleted_watch_count",
    "zk_sum_node_changed_watch_count",
    "zk_sum_node_children_watch_count",
];

/// Counters of all servers together.
#[derive(Clone, Copy)]
pub(crate) struct Traffic {
    /// Requests, pings and the reading of these counters included.
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) events: u64,
}

impl Traffic {
    /// `None` where a server does not answer `mntr`.
    pub(crate) fn read(servers: &str) -> Option<Traffic> {
        let hosts = servers.split_once('/').map_or(servers, |(hosts, _)| hosts);
        let mut sum = Traffic {
            received: 0,
            sent: 0,
            events: 0,
        };
        for host in hosts.split(',') {
            let answer = four_letter::ask(address(host)?, "mntr", ANSWER).ok()?;
            let numbers = four_letter::numbers(&answer);
            sum.received += numbers.get("zk_packets_received")?;
            sum.sent += numbers.get("zk_packets_sent")?;
            let fired = FIRED.iter().filter_map(|name| numbers.get(name));
            sum.events += fired.sum::<u64>();
        }
        Some(sum)
    }
}

impl Sub for Traffic {
    type Output = Traffic;

    fn sub(self, earlier: Traffic) -> Traffic {
        Traffic {
            received: self.received.saturating_sub(earlier.received),
            sent: self.sent.saturating_sub(earlier.sent),
            events: self.events.saturating_sub(earlier.events),
        }
    }
}

fn address(host: &str) -> Option<SocketAddr> {
    let with_port = host.to_socket_addrs().ok().and_then(|mut all| all.next());
    with_port.or_else(|| (host, 2181).to_socket_addrs().ok()?.next())
}
