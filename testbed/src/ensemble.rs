//! An ensemble of real servers on loopback ports.

use std::time::{Duration, Instant};

use super::ports::Port;
use super::quorum_links::QuorumLinks;
use super::server::{Membership, Server, ServerBuilder, StartFailure};
use super::wait_for_some;

const START: Duration = Duration::from_secs(90);
const ELECTION: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(500);
const PORT_ATTEMPTS: u32 = 5;

/// Running servers that elect a leader among them. Dropping it ends them all.
#[derive(Debug)]
pub struct Ensemble {
    servers: Vec<Server>,
    /// The quorum and election port of each. They stay claimed, or a stranger
    /// could take one while its server is down.
    _peer_ports: Vec<(Port, Port)>,
    links: Option<QuorumLinks>,
}

/// How the servers of an ensemble reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wiring {
    Direct,
    /// Each pair, each way, by proxies of its own.
    Proxied,
}

impl Ensemble {
    /// Starts `size` servers and returns when each serves: there is a leader,
    /// and the others follow.
    pub fn start(size: usize) -> Ensemble {
        Ensemble::start_with(size, &Server::builder())
    }

    /// As [`Ensemble::start`], each server set up as the builder says.
    pub fn start_with(size: usize, builder: &ServerBuilder) -> Ensemble {
        Ensemble::start_wired(size, 0, builder, Wiring::Direct)
    }

    /// As [`Ensemble::start_with`], but what the servers say to each other goes
    /// through proxies; see [`Ensemble::links`].
    pub fn start_proxied(size: usize, builder: &ServerBuilder) -> Ensemble {
        Ensemble::start_wired(size, 0, builder, Wiring::Proxied)
    }

    /// As [`Ensemble::start_with`], with observers of the leader behind those who vote.
    pub fn start_observed(voters: usize, observers: usize, builder: &ServerBuilder) -> Ensemble {
        Ensemble::start_wired(voters + observers, observers, builder, Wiring::Direct)
    }

    fn start_wired(
        size: usize,
        observers: usize,
        builder: &ServerBuilder,
        wiring: Wiring,
    ) -> Ensemble {
        for _ in 0..PORT_ATTEMPTS {
            let ensemble = Ensemble::prepare(size, observers, builder, wiring);
            ensemble.servers.iter().for_each(Server::relaunch);
            match ensemble.wait_until_all_serve() {
                Ok(()) => return ensemble,
                Err(StartFailure::PortTaken) => {}
                Err(failure) => panic!("the ensemble did not start: {failure}"),
            }
        }
        panic!("in each of {PORT_ATTEMPTS} tries some port was taken before it could be bound");
    }

    /// The last of them are observers.
    fn prepare(size: usize, observers: usize, builder: &ServerBuilder, wiring: Wiring) -> Ensemble {
        let observes = |server| server + observers >= size;
        let peer_ports: Vec<(Port, Port)> =
            (0..size).map(|_| (Port::claim(), Port::claim())).collect();
        let builder = builder
            .clone()
            .default_setting("initLimit", "20")
            // How soon a leader and its followers notice that the other side
            // is frozen: 6 ticks, 3 s by default.
            .default_setting("syncLimit", "6");
        let links = (wiring == Wiring::Proxied).then(|| QuorumLinks::between(&peer_ports));
        let servers = (0..size)
            .map(|own| {
                let mut builder = builder.clone();
                for (peer, (quorum, election)) in peer_ports.iter().enumerate() {
                    // Its own line is what a server listens at.
                    let by_proxy = links.as_ref().filter(|_| peer != own);
                    let mut address = match by_proxy {
                        Some(links) => links.address(own, peer),
                        None => format!("127.0.0.1:{}:{}", quorum.number(), election.number()),
                    };
                    if observes(peer) {
                        address += ":observer";
                    }
                    builder = builder.setting(&format!("server.{}", member_id(peer)), &address);
                }
                if observes(own) {
                    builder = builder.setting("peerType", "observer");
                }
                builder.prepare(Port::claim(), Some(Membership(member_id(own))))
            })
            .collect();
        Ensemble {
            servers,
            _peer_ports: peer_ports,
            links,
        }
    }

    /// The servers' connections to each other.
    ///
    /// # Panics
    /// If the ensemble was not started proxied.
    #[track_caller]
    pub fn links(&self) -> &QuorumLinks {
        self.links
            .as_ref()
            .expect("an ensemble that was started proxied")
    }

    /// All servers, `127.0.0.1:port` each, separated by commas.
    pub fn connect_string(&self) -> String {
        let addresses: Vec<String> = self.servers.iter().map(Server::connect_string).collect();
        addresses.join(",")
    }

    pub fn size(&self) -> usize {
        self.servers.len()
    }

    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// Which server leads. Waits while an election is under way.
    ///
    /// # Panics
    /// If nobody (or more than one) claims to lead for 60 s.
    #[track_caller]
    pub fn leader(&self) -> usize {
        // A leader that was frozen claims to lead still, for a moment after it
        // has thawed. So one claim counts only while it is the only one.
        wait_for_some(ELECTION, || {
            let mut leaders = self
                .awake()
                .filter(|index| self.servers[*index].mode(LOOK).as_deref() == Some("leader"));
            let leader = leaders.next()?;
            leaders.next().is_none().then_some(leader)
        })
        .expect("a leader is elected while most servers are awake")
    }

    /// Which of these servers leads; none while they have not agreed, or too few
    /// of them are left. Does not wait.
    pub fn leader_among(&self, servers: &[usize]) -> Option<usize> {
        let leads = |index: &&usize| self.servers[**index].mode(LOOK).as_deref() == Some("leader");
        servers.iter().find(leads).copied()
    }

    /// A server that does not lead, but serves.
    #[track_caller]
    pub fn follower(&self) -> usize {
        wait_for_some(ELECTION, || {
            self.awake()
                .find(|index| self.servers[*index].mode(LOOK).as_deref() == Some("follower"))
        })
        .expect("a server follows while most are awake")
    }

    /// Kills a server (SIGKILL).
    pub fn kill(&self, index: usize) {
        self.servers[index].kill();
    }

    /// Freezes a server (SIGSTOP).
    pub fn stop(&self, index: usize) {
        self.servers[index].stop();
    }

    /// Lets a frozen server go on. It may still have to find its way back into
    /// the ensemble; see [`Ensemble::wait_until_awake_serve`].
    pub fn cont(&self, index: usize) {
        self.servers[index].cont();
    }

    /// Starts a killed server again. Returns when it serves, or at once where
    /// too few others are awake for anybody to serve.
    pub fn restart(&self, index: usize) {
        self.servers[index].relaunch();
        if self.awake().count() * 2 > self.servers.len() {
            self.wait_until_awake_serve();
        }
    }

    /// Waits until every server that is neither killed nor frozen serves.
    ///
    /// # Panics
    /// If that takes more than 90 s.
    #[track_caller]
    pub fn wait_until_awake_serve(&self) {
        let deadline = Instant::now() + START;
        for index in self.awake() {
            while let Err(failure) = self.servers[index].wait_until_serving(deadline) {
                let again = failure == StartFailure::PortTaken && Instant::now() < deadline;
                assert!(again, "server {index} does not serve: {failure}");
                // A passing connection of another program held the port.
                self.servers[index].relaunch();
            }
        }
    }

    fn wait_until_all_serve(&self) -> Result<(), StartFailure> {
        let deadline = Instant::now() + START;
        self.servers
            .iter()
            .try_for_each(|server| server.wait_until_serving(deadline))
    }

    fn awake(&self) -> impl Iterator<Item = usize> {
        (0..self.servers.len()).filter(|index| self.servers[*index].is_awake())
    }
}

fn member_id(index: usize) -> usize {
    index + 1
}
