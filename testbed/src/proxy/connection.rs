//! One proxied connection: two sockets, a lane each way, and the requests whose
//! replies are still to come.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use super::frames::{Answer, Request, harmless, opcode_of_special, refusal};
use super::lane::{Lane, Parcel, Progress, is_passing};
use super::relay::Speech;
use super::rules::{Action, Effect, Rules, Sentence};
use super::{RuleId, Seen, opcode};

/// Read at most this much at a time, so that no connection starves another.
const CHUNK: usize = 64 * 1024;

/// What a slow network keeps on its way.
pub(super) const SIP: usize = 8 * 1024;

/// What holds for all connections now.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Regime {
    pub(super) to_server: LaneRegime,
    pub(super) to_client: LaneRegime,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct LaneRegime {
    pub(super) silent: bool,
    pub(super) delay: Duration,
    /// In bytes a second. Of the way to the server only.
    pub(super) rate: Option<u32>,
}

/// Whether a connection is still of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    GoesOn,
    Over,
    ToReset,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: TcpStream,
    pub(super) server: TcpStream,
    target: SocketAddr,
    server_link: ServerLink,
    redial: Option<Redial>,
    pub(super) to_server: Lane,
    pub(super) to_client: Lane,
    silent: bool,
    /// Until then a slow network is busy with what was read before.
    busy_until: Instant,
    handshake: Handshake,
    pending: HashMap<i32, Pending>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerLink {
    Dialling,
    Up,
    Failed,
}

/// A server that dials a peer which is about to listen is refused, and dials
/// again. Through a proxy it has been let in already, and would take a reset for
/// the end of its peer: a new leader lost its followers so, again and again.
/// Therefore the proxy dials again in its place.
#[derive(Debug, Clone, Copy)]
struct Redial {
    next: Instant,
    last: Instant,
}

const REDIAL_EVERY: Duration = Duration::from_millis(20);
const REDIAL_FOR: Duration = Duration::from_secs(10);

/// The first frame of each direction has no header.
#[derive(Debug)]
enum Handshake {
    Awaited,
    Sent(Pending),
    Done,
}

/// A request that was passed on, and what is to happen to its reply.
#[derive(Debug, Clone, Copy)]
struct Pending {
    opcode: i32,
    on_reply: Option<(RuleId, Effect)>,
    /// The server does something harmless instead, and this is what the client is told.
    refused: Option<i32>,
}

impl Connection {
    /// Takes over an accepted connection and begins to dial the server.
    pub(super) fn new(
        client: TcpStream,
        target: SocketAddr,
        speech: Speech,
    ) -> io::Result<Connection> {
        client.set_nonblocking(true)?;
        client.set_nodelay(true)?;
        let (server, server_link) = dial(target)?;
        let [mut to_server, mut to_client] = [Lane::default(), Lane::default()];
        let mut redial = None;
        if speech == Speech::Unknown {
            let next = Instant::now();
            let last = next + REDIAL_FOR;
            redial = Some(Redial { next, last });
            to_server.cutter.set_raw();
            to_client.cutter.set_raw();
        }
        Ok(Connection {
            client,
            server,
            target,
            server_link,
            redial,
            to_server,
            to_client,
            silent: false,
            busy_until: Instant::now(),
            handshake: Handshake::Awaited,
            pending: HashMap::new(),
        }
        .noting_a_failed_dial())
    }

    /// Reads, judges and writes whatever can be at `now`.
    pub(super) fn advance(
        &mut self,
        regime: Regime,
        rules: &mut Rules,
        seen: &Seen,
        now: Instant,
    ) -> Fate {
        self.finish_dialling();
        self.dial_again(now);
        if self.reads_client(regime, now) {
            self.read_client(regime.to_server, rules, seen, now);
        }
        if self.reads_server(regime) {
            self.read_server(regime.to_client, rules, seen, now);
        }
        for direction in [Way::ToServer, Way::ToClient] {
            // Asked anew each time: passing one lane on may silence both.
            if !self.may_pass(direction, regime) {
                continue;
            }
            let progress = match direction {
                Way::ToServer => self.to_server.pass_on(&self.server, now),
                Way::ToClient => self.to_client.pass_on(&self.client, now),
            };
            match progress {
                Progress::Waits => {}
                Progress::Reset => return Fate::ToReset,
                Progress::Silence => self.silent = true,
            }
        }
        if self.to_server.is_over() && self.to_client.is_over() {
            Fate::Over
        } else {
            Fate::GoesOn
        }
    }

    pub(super) fn reads_client(&self, regime: Regime, now: Instant) -> bool {
        let heard = !self.silent && !regime.to_server.silent;
        heard && self.busy_until <= now && self.to_server.wants_to_read()
    }

    pub(super) fn reads_server(&self, regime: Regime) -> bool {
        let up = self.server_link == ServerLink::Up;
        up && !self.silent && !regime.to_client.silent && self.to_client.wants_to_read()
    }

    pub(super) fn writes_server(&self, regime: Regime, now: Instant) -> bool {
        let dialling = self.server_link == ServerLink::Dialling;
        dialling || (self.may_pass(Way::ToServer, regime) && self.to_server.wants_to_write(now))
    }

    pub(super) fn writes_client(&self, regime: Regime, now: Instant) -> bool {
        self.may_pass(Way::ToClient, regime) && self.to_client.wants_to_write(now)
    }

    /// When the clock alone will give this connection something to do.
    pub(super) fn next_due(&self, regime: Regime) -> Option<Instant> {
        let lanes = [
            (Way::ToServer, &self.to_server),
            (Way::ToClient, &self.to_client),
        ];
        lanes
            .into_iter()
            .filter(|(way, _)| self.may_pass(*way, regime))
            .filter_map(|(_, lane)| lane.next_due())
            .chain(self.next_dial())
            .chain(regime.to_server.rate.map(|_| self.busy_until))
            .min()
    }

    /// Ends the silence that a rule brought upon this connection alone.
    pub(super) fn heal(&mut self) {
        self.silent = false;
    }

    pub(super) fn release(&mut self, is_released: impl Fn(RuleId) -> bool) {
        self.to_server.release(&is_released);
        self.to_client.release(&is_released);
    }

    /// Ends the connection with a RST to both sides.
    pub(super) fn reset(self) {
        // With nothing to linger for, closing resets. It fails only on a
        // socket that the other side has reset before.
        let _ = sockopt::set_socket_linger(&self.client, Some(Duration::ZERO));
        let _ = sockopt::set_socket_linger(&self.server, Some(Duration::ZERO));
    }

    fn may_pass(&self, way: Way, regime: Regime) -> bool {
        let lane_silent = match way {
            Way::ToServer => regime.to_server.silent || self.server_link != ServerLink::Up,
            Way::ToClient => regime.to_client.silent,
        };
        !self.silent && !lane_silent
    }

    fn finish_dialling(&mut self) {
        if self.server_link != ServerLink::Dialling {
            return;
        }
        match (self.server.take_error(), self.server.peer_addr()) {
            (Ok(None), Ok(_)) => self.server_link = ServerLink::Up,
            (Ok(None), Err(_)) => {}
            _ => self.fail_to_dial(),
        }
    }

    fn noting_a_failed_dial(mut self) -> Connection {
        if self.server_link == ServerLink::Failed {
            self.fail_to_dial();
        }
        self
    }

    fn next_dial(&self) -> Option<Instant> {
        let failed = self.server_link == ServerLink::Failed;
        self.redial.filter(|_| failed).map(|redial| redial.next)
    }

    fn dial_again(&mut self, now: Instant) {
        if self.next_dial().is_none_or(|next| next > now) {
            return;
        }
        match dial(self.target) {
            Ok((server, ServerLink::Failed)) => {
                self.server = server;
                self.fail_to_dial();
            }
            Ok((server, link)) => {
                self.server = server;
                self.server_link = link;
            }
            Err(_) => self.fail_to_dial(),
        }
    }

    fn fail_to_dial(&mut self) {
        self.server_link = ServerLink::Failed;
        if let Some(redial) = &mut self.redial {
            redial.next += REDIAL_EVERY;
            if redial.next < redial.last {
                return;
            }
            self.redial = None;
        }
        // As a parcel, so that a black hole hides it from the client.
        self.to_client.end_source(Parcel::Reset);
    }

    fn read_client(&mut self, regime: LaneRegime, rules: &mut Rules, seen: &Seen, now: Instant) {
        let most = if regime.rate.is_some() { SIP } else { CHUNK };
        let (source, read) = fill(&self.client, &mut self.to_server, most);
        if let Some(rate) = regime.rate {
            self.busy_until = now + Duration::from_secs_f64(read as f64 / f64::from(rate));
        }
        let mut is_asked = false;
        while let Some(mut frame) = self.to_server.cutter.next() {
            if self.to_server.cutter.is_raw() {
                self.to_client.cutter.set_raw();
                rules.apply_rewrites(&mut frame);
                self.to_server.push(bytes(frame, regime, now, None));
            } else {
                is_asked |= Request::parse(&frame).is_some_and(|request| !request.is_probe);
                let verdict = self.judge_request(&mut frame, rules, seen);
                deliver(&mut self.to_server, frame, verdict, regime, seen, now);
            }
        }
        if is_asked {
            seen.update(|state| state.counters.writes += 1);
        }
        source.close(&mut self.to_server);
    }

    fn read_server(&mut self, regime: LaneRegime, rules: &Rules, seen: &Seen, now: Instant) {
        let (source, _) = fill(&self.server, &mut self.to_client, CHUNK);
        while let Some(mut frame) = self.to_client.cutter.next() {
            if self.to_client.cutter.is_raw() {
                self.to_client.push(bytes(frame, regime, now, None));
            } else {
                let verdict = self.judge_answer(&mut frame, rules, seen);
                deliver(&mut self.to_client, frame, verdict, regime, seen, now);
            }
        }
        source.close(&mut self.to_client);
    }

    fn judge_request(
        &mut self,
        frame: &mut Vec<u8>,
        rules: &mut Rules,
        seen: &Seen,
    ) -> Option<(RuleId, Effect)> {
        let greeting = matches!(self.handshake, Handshake::Awaited);
        let request = if greeting {
            Request {
                xid: 0,
                opcode: opcode::CONNECT,
                exactly: opcode::CONNECT,
                path: None,
                is_probe: false,
            }
        } else {
            Request::parse(frame)?
        };
        seen.update(|state| {
            let counters = &mut state.counters;
            *counters.requests.entry(request.opcode).or_default() += 1;
            counters.probes += u64::from(request.is_probe);
        });
        let Sentence {
            on_request,
            on_reply,
        } = rules.judge(&request);
        let xid = request.xid;
        let mut pending = Pending {
            opcode: request.opcode,
            on_reply,
            refused: None,
        };
        if greeting {
            self.handshake = Handshake::Sent(pending);
            return on_request;
        }
        match on_request {
            Some((rule, Effect::Lose(Action::Refuse(code)))) => {
                pending.refused = Some(code);
                *frame = harmless(xid);
                seen.strikes(rule);
                self.pending.insert(xid, pending);
                return None;
            }
            Some((_, Effect::Lose(_))) => {}
            _ => drop(self.pending.insert(xid, pending)),
        }
        on_request
    }

    fn judge_answer(
        &mut self,
        frame: &mut Vec<u8>,
        rules: &Rules,
        seen: &Seen,
    ) -> Option<(RuleId, Effect)> {
        let pending = match (&self.handshake, Answer::parse(frame)?) {
            (Handshake::Sent(pending), _) => {
                let pending = *pending;
                self.handshake = Handshake::Done;
                pending
            }
            (_, Answer::Notification) => {
                seen.update(|state| state.counters.notifications += 1);
                return None;
            }
            (_, Answer::To { xid }) => self.pending.remove(&xid).or_else(|| {
                // Two pings can be under way under one number.
                opcode_of_special(xid).map(|opcode| Pending {
                    opcode,
                    on_reply: None,
                    refused: None,
                })
            })?,
        };
        seen.update(|state| *state.counters.replies.entry(pending.opcode).or_default() += 1);
        if let Some(code) = pending.refused {
            *frame = refusal(frame, code);
            return None;
        }
        let verdict = pending.on_reply.filter(|(rule, _)| rules.contains(*rule));
        if let Some((rule, Effect::Lose(Action::Refuse(code)))) = verdict {
            *frame = refusal(frame, code);
            seen.strikes(rule);
            return None;
        }
        verdict
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

/// What a socket had to say beside bytes.
enum Source {
    Open,
    Ended,
    Broken,
}

impl Source {
    fn close(self, lane: &mut Lane) {
        match self {
            Source::Open => {}
            Source::Ended => lane.end_source(Parcel::End),
            Source::Broken => lane.end_source(Parcel::Reset),
        }
    }
}

/// Also says how much was read.
fn fill(mut from: &TcpStream, lane: &mut Lane, most: usize) -> (Source, usize) {
    let mut chunk = [0; CHUNK];
    match from.read(&mut chunk[..most]) {
        Ok(0) => (Source::Ended, 0),
        Ok(count) => {
            lane.cutter.push(&chunk[..count]);
            (Source::Open, count)
        }
        Err(error) if is_passing(&error) => (Source::Open, 0),
        Err(_) => (Source::Broken, 0),
    }
}

/// Puts a frame on its lane, or does to it what a rule wants.
fn deliver(
    lane: &mut Lane,
    frame: Vec<u8>,
    verdict: Option<(RuleId, Effect)>,
    regime: LaneRegime,
    seen: &Seen,
    now: Instant,
) {
    let Some((rule, effect)) = verdict else {
        return lane.push(bytes(frame, regime, now, None));
    };
    match effect {
        Effect::Hold => lane.push(bytes(frame, regime, now, Some(rule))),
        // A refusal is put in place of the frame before.
        Effect::Lose(Action::Drop | Action::Refuse(_)) => {}
        Effect::Lose(Action::Reset) => lane.push(Parcel::Reset),
        Effect::Lose(Action::BlackHole) => lane.push(Parcel::Silence),
    }
    seen.update(|state| {
        *state.struck.entry(rule).or_default() += 1;
        state.counters.dropped += u64::from(effect != Effect::Hold);
    });
}

fn bytes(bytes: Vec<u8>, regime: LaneRegime, now: Instant, held_by: Option<RuleId>) -> Parcel {
    Parcel::Bytes {
        bytes,
        due: now + regime.delay,
        held_by,
    }
}

/// Dials without waiting: a frozen server with a full backlog would otherwise
/// hold up every other connection.
fn dial(target: SocketAddr) -> io::Result<(TcpStream, ServerLink)> {
    let family = match target {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    let link = match net::connect(&socket, &target) {
        Ok(()) => ServerLink::Up,
        Err(Errno::INPROGRESS) => ServerLink::Dialling,
        Err(_) => ServerLink::Failed,
    };
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok((stream, link))
}
