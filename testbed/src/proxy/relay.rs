//! The proxy's thread: one loop that waits, obeys, and moves bytes.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connection::{Connection, Fate, Regime, SIP};
use super::rules::{Effect, Matcher, Phase, Rules};
use super::{Direction, Order, RuleId, Seen};

/// What the proxy can make of the bytes that it passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speech {
    /// Frames between a client and a server.
    ZooKeeper,
    /// Bytes. Between servers the lengths that frames begin with are missing.
    Unknown,
}

/// From where to where a proxy leads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Route {
    pub(super) listens_at: SocketAddr,
    pub(super) target: SocketAddr,
    pub(super) speech: Speech,
}

/// Everything that belongs to the proxy's thread. Orders run on it, between
/// two rounds of moving bytes, so nothing here needs a lock.
pub(super) struct Relay {
    route: Route,
    listener: Option<TcpListener>,
    connections: Vec<Connection>,
    regime: Regime,
    rules: Rules,
    woken: UnixStream,
    inbox: Receiver<Order>,
    seen: Arc<Seen>,
    quits: bool,
}

impl Relay {
    pub(super) fn new(
        route: Route,
        woken: UnixStream,
        inbox: Receiver<Order>,
        seen: Arc<Seen>,
    ) -> Relay {
        woken.set_nonblocking(true).expect("it is a socket");
        Relay {
            route,
            listener: None,
            connections: Vec::new(),
            regime: Regime::default(),
            rules: Rules::default(),
            woken,
            inbox,
            seen,
            quits: false,
        }
    }

    pub(super) fn run(mut self) {
        while !self.quits {
            self.wait();
            // Orders first: no byte moves under the old regime once the test
            // has been told that its order was carried out.
            self.obey();
            self.accept_all();
            self.advance_all();
        }
        self.reset_all();
    }

    pub(super) fn listen(&mut self) {
        if self.listener.is_none() {
            let listener = TcpListener::bind(self.route.listens_at).expect("the port is claimed");
            listener.set_nonblocking(true).expect("it is a socket");
            self.listener = Some(listener);
        }
    }

    pub(super) fn refuse(&mut self) {
        // Who has connected before the order is connected.
        self.accept_all();
        self.listener = None;
    }

    pub(super) fn retarget(&mut self, target: SocketAddr) {
        self.accept_all();
        self.route.target = target;
    }

    pub(super) fn delay(&mut self, direction: Direction, delay: Duration) {
        self.each_lane(direction, |lane| lane.delay = delay);
    }

    /// For connections that are accepted from now on: little of theirs is kept on the way.
    pub(super) fn limit_rate(&mut self, rate: u32) {
        self.accept_all();
        self.regime.to_server.rate = Some(rate);
        if let Some(listener) = &self.listener {
            let kept = rustix::net::sockopt::set_socket_recv_buffer_size(listener, SIP);
            kept.expect("it is a socket");
        }
    }

    pub(super) fn silence(&mut self, direction: Direction) {
        self.each_lane(direction, |lane| lane.silent = true);
    }

    pub(super) fn speak(&mut self, direction: Direction) {
        self.each_lane(direction, |lane| lane.silent = false);
    }

    pub(super) fn rewrite(&mut self, from: Vec<u8>, to: Vec<u8>) {
        self.rules.rewrite(from, to);
    }

    pub(super) fn heal(&mut self) {
        self.each_lane(Direction::Both, |lane| lane.silent = false);
        self.connections.iter_mut().for_each(Connection::heal);
    }

    pub(super) fn reset_all(&mut self) {
        self.accept_all();
        self.connections.drain(..).for_each(Connection::reset);
        self.count_open();
    }

    pub(super) fn on_request(&mut self, matcher: Matcher, effect: Effect) -> RuleId {
        self.rules.add(Phase::Request, matcher, effect)
    }

    pub(super) fn on_reply(&mut self, matcher: Matcher, effect: Effect) -> RuleId {
        self.rules.add(Phase::Reply, matcher, effect)
    }

    pub(super) fn forget_rule(&mut self, id: RuleId) {
        self.rules.remove(id);
        for connection in &mut self.connections {
            connection.release(|rule| rule == id);
        }
    }

    pub(super) fn forget_rules(&mut self) {
        self.rules.clear();
        for connection in &mut self.connections {
            connection.release(|_| true);
        }
    }

    pub(super) fn quit(&mut self) {
        self.quits = true;
    }

    fn each_lane(
        &mut self,
        direction: Direction,
        change: impl Fn(&mut super::connection::LaneRegime),
    ) {
        if direction != Direction::ToClient {
            change(&mut self.regime.to_server);
        }
        if direction != Direction::ToServer {
            change(&mut self.regime.to_client);
        }
    }

    /// Sleeps until a socket, the clock or an order gives something to do.
    fn wait(&mut self) {
        let now = Instant::now();
        let mut watched = vec![PollFd::new(&self.woken, PollFlags::IN)];
        watched.extend(
            self.listener
                .iter()
                .map(|listener| PollFd::new(listener, PollFlags::IN)),
        );
        for connection in &self.connections {
            let sides = [
                (
                    &connection.client,
                    connection.reads_client(self.regime, now),
                    connection.writes_client(self.regime, now),
                ),
                (
                    &connection.server,
                    connection.reads_server(self.regime),
                    connection.writes_server(self.regime, now),
                ),
            ];
            for (socket, reads, writes) in sides {
                let mut interest = PollFlags::empty();
                interest.set(PollFlags::IN, reads);
                interest.set(PollFlags::OUT, writes);
                // A socket that is watched for nothing would still report its
                // hang-up, again and again.
                if !interest.is_empty() {
                    watched.push(PollFd::new(socket, interest));
                }
            }
        }
        let due = self
            .connections
            .iter()
            .filter_map(|connection| connection.next_due(self.regime))
            // What is due already waits for its socket, not for the clock.
            .filter(|due| *due > now)
            .min();
        let timeout = due.map(|due| {
            Timespec::try_from(due.saturating_duration_since(now)).expect("delays are short")
        });
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the proxy cannot wait: {error}"),
        }
    }

    fn obey(&mut self) {
        let mut drained = [0; 64];
        while self.woken.read(&mut drained).is_ok_and(|count| count > 0) {}
        while let Ok(order) = self.inbox.try_recv() {
            order(self);
        }
    }

    fn accept_all(&mut self) {
        let Some(listener) = &self.listener else {
            return;
        };
        let before = self.connections.len();
        while let Ok((client, _)) = listener.accept() {
            // Fails where the client has gone again, or no descriptor is left:
            // for the client, a connection that broke.
            self.connections.extend(Connection::new(
                client,
                self.route.target,
                self.route.speech,
            ));
        }
        let accepted = self.connections.len() - before;
        if accepted > 0 {
            self.seen
                .update(|state| state.counters.accepted += accepted as u64);
            self.count_open();
        }
    }

    fn advance_all(&mut self) {
        let now = Instant::now();
        let before = self.connections.len();
        let mut going_on = Vec::with_capacity(before);
        for mut connection in self.connections.drain(..) {
            match connection.advance(self.regime, &mut self.rules, &self.seen, now) {
                Fate::GoesOn => going_on.push(connection),
                Fate::Over => {}
                Fate::ToReset => connection.reset(),
            }
        }
        self.connections = going_on;
        if self.connections.len() != before {
            self.count_open();
        }
    }

    fn count_open(&self) {
        let open = self.connections.len() as u64;
        self.seen.update(|state| state.counters.open = open);
    }
}
