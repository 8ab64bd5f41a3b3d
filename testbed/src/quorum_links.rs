//! What the servers of an ensemble say to each other, through proxies: any
//! server can be kept from hearing any other.

use std::time::Duration;

use super::ports::Port;
use super::proxy::{Direction, Proxy};

/// For each server and each of its peers, the proxies by which it dials that
/// peer.
#[derive(Debug)]
pub struct QuorumLinks {
    /// `dials[from][to]`; none where the two are the same.
    dials: Vec<Vec<Option<Pair>>>,
}

#[derive(Debug)]
struct Pair {
    quorum: Proxy,
    election: Proxy,
}

impl Pair {
    fn both(&self) -> [&Proxy; 2] {
        [&self.quorum, &self.election]
    }
}

impl QuorumLinks {
    /// Proxies between servers that listen at these quorum and election ports.
    pub(super) fn between(ports: &[(Port, Port)]) -> QuorumLinks {
        let pair = |(quorum, election): &(Port, Port)| Pair {
            quorum: Proxy::start_raw(quorum.addr()),
            election: Proxy::start_raw(election.addr()),
        };
        let dials = (0..ports.len()).map(|from| {
            let peers = ports.iter().enumerate();
            peers
                .map(|(to, ports)| (from != to).then(|| pair(ports)))
                .collect()
        });
        let links = QuorumLinks {
            dials: dials.collect(),
        };
        links.announce_proxies(ports);
        links
    }

    /// Who dials a peer for an election says its own address, and the peer may
    /// hang up and dial that. So the address is replaced on its way by the one
    /// by which the peer is to dial.
    fn announce_proxies(&self, ports: &[(Port, Port)]) {
        for (from, to) in self.ways() {
            let (_, own) = &ports[from];
            let back = self.pair(to, from).election.addr();
            let announced = &self.pair(from, to).election;
            announced.rewrite(&own.addr().to_string(), &back.to_string());
        }
    }

    /// How `from` is to dial `to`, as a server's configuration says it.
    pub(super) fn address(&self, from: usize, to: usize) -> String {
        let pair = self.pair(from, to);
        let [quorum, election] = pair.both().map(|proxy| proxy.addr().port());
        format!("127.0.0.1:{quorum}:{election}")
    }

    /// Swallows what `from` says to `to`, until it is healed. As on a wire that
    /// lost its packets: neither side is told, and what was under way arrives
    /// late if the connection still stands then.
    pub fn cut(&self, from: usize, to: usize) {
        self.each_lane(from, to, Proxy::black_hole);
    }

    /// Lets what `from` says to `to` pass again.
    pub fn join(&self, from: usize, to: usize) {
        self.each_lane(from, to, Proxy::heal_direction);
    }

    /// Nobody hears this server.
    pub fn mute(&self, server: usize) {
        self.peers(server).for_each(|peer| self.cut(server, peer));
    }

    /// This server hears nobody.
    pub fn deafen(&self, server: usize) {
        self.peers(server).for_each(|peer| self.cut(peer, server));
    }

    /// Cuts this server off from its peers, both ways.
    pub fn isolate(&self, server: usize) {
        self.mute(server);
        self.deafen(server);
    }

    /// Lets what `from` says to `to` arrive so much later.
    pub fn delay(&self, from: usize, to: usize, delay: Duration) {
        self.each_lane(from, to, |proxy, way| proxy.delay_direction(way, delay));
    }

    /// Resets every connection between the two, whoever dialled it.
    pub fn reset(&self, one: usize, other: usize) {
        for (from, to) in [(one, other), (other, one)] {
            for proxy in self.pair(from, to).both() {
                proxy.reset_all();
            }
        }
    }

    /// Ends all cuts and delays.
    pub fn heal(&self) {
        for (from, to) in self.ways() {
            for proxy in self.pair(from, to).both() {
                proxy.pass();
            }
        }
    }

    /// How many connections for elections stand between the two.
    pub fn election_connections(&self, one: usize, other: usize) -> u64 {
        let dialled = |from, to| self.pair(from, to).election.counters().open;
        dialled(one, other) + dialled(other, one)
    }

    fn peers(&self, server: usize) -> impl Iterator<Item = usize> {
        (0..self.dials.len()).filter(move |peer| *peer != server)
    }

    fn ways(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.dials.len()).flat_map(|from| self.peers(from).map(move |to| (from, to)))
    }

    fn pair(&self, from: usize, to: usize) -> &Pair {
        self.dials[from][to]
            .as_ref()
            .expect("a server has no link to itself")
    }

    /// What `from` says to `to` goes one way where `from` dialled, the other
    /// way where `to` did.
    fn each_lane(&self, from: usize, to: usize, act: impl Fn(&Proxy, Direction)) {
        for proxy in self.pair(from, to).both() {
            act(proxy, Direction::ToServer);
        }
        for proxy in self.pair(to, from).both() {
            act(proxy, Direction::ToClient);
        }
    }
}
