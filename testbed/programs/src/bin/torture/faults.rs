//! The harm that can be done, and how it is mended.

use std::time::Duration;

use crate::aim;
use crate::crew::WORKERS;
use crate::stage::Stage;
use testbed::{
    Action, Direction, Matcher, Proxy, RawSession, Server, opcode, process, wait_for_some,
};
use testbed_programs::random::Random;

const SERVERS: usize = 3;

/// How long a removal by hand may take.
const A_CALL: Duration = Duration::from_secs(2);

/// One thing that goes wrong for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    ServerKilled(usize),
    ServerStopped(usize),
    /// All servers but this one.
    MajorityKilled(usize),
    MajorityStopped(usize),
    ServerCutOff(usize),
    ServerMuted(usize),
    ServerDeafened(usize),
    /// What one server says to another.
    WayCut(usize, usize),
    LinksSlow(Duration),
    LinksReset(usize, usize),
    WorkerKilled(usize),
    WorkerStopped(usize),
    /// On the worker's side of a partition is this server alone, or none.
    WorkerCutOff(usize, Option<usize>, Direction),
    WorkerSlow(usize, Duration),
    WorkerReset(usize),
    WorkerRefused(usize),
    /// The worker reaches one server only, and that is cut off from its peers.
    ShareOfPartition(usize, usize),
    NodeRemoved,
    /// Servers are too busy for every third request of the worker.
    WorkerThrottled(usize),
    /// Servers cannot say what became of some of the worker's requests, with this error: of some they
    /// have done, and of some they have not.
    WorkerMisled(usize, i32),
    /// Servers take nothing from the worker, which has more to say than is kept for them.
    WorkerStalled(usize),
}

/// Too busy.
const THROTTLED: i32 = -127;
/// The two ways to say that it is unknown what became of a request.
const LOST_TRACK: [i32; 2] = [-4, -7];

impl Fault {
    /// One of those in which servers answer that they do not do it for now, or seem to take it.
    pub(crate) fn pick_refusal(random: &mut Random) -> Fault {
        let worker = random.place(WORKERS);
        let code = random.of(&LOST_TRACK);
        match random.below(5) {
            0 | 1 => Fault::WorkerThrottled(worker),
            2 | 3 => Fault::WorkerMisled(worker, code),
            _ => Fault::WorkerStalled(worker),
        }
    }

    pub(crate) fn pick(random: &mut Random) -> Fault {
        let server = random.place(SERVERS);
        let other = (server + 1 + random.place(SERVERS - 1)) % SERVERS;
        let worker = random.place(WORKERS);
        let direction = random.of(&[Direction::Both, Direction::ToServer, Direction::ToClient]);
        let delay = random.between(Duration::from_millis(5), Duration::from_millis(500));
        match random.below(32) {
            0 | 1 => Fault::ServerKilled(server),
            2 | 3 => Fault::ServerStopped(server),
            4 => Fault::MajorityKilled(server),
            5 => Fault::MajorityStopped(server),
            6 => Fault::ServerCutOff(server),
            7 => Fault::ServerMuted(server),
            8 => Fault::ServerDeafened(server),
            9 => Fault::WayCut(server, other),
            10 => Fault::LinksSlow(delay / 2),
            11 => Fault::LinksReset(server, other),
            12 | 13 => Fault::WorkerKilled(worker),
            14..17 => Fault::WorkerStopped(worker),
            17..20 => Fault::WorkerCutOff(worker, None, direction),
            20 => Fault::WorkerCutOff(worker, Some(server), direction),
            21 => Fault::WorkerSlow(worker, delay),
            22 => Fault::WorkerReset(worker),
            23 => Fault::WorkerRefused(worker),
            24 | 25 => Fault::ShareOfPartition(worker, server),
            28.. => Fault::pick_refusal(random),
            _ => Fault::NodeRemoved,
        }
    }

    /// The same fault, at this worker if it is one of workers.
    pub(crate) fn aimed_at(self, worker: usize) -> Fault {
        match self {
            Fault::WorkerKilled(_) => Fault::WorkerKilled(worker),
            Fault::WorkerStopped(_) => Fault::WorkerStopped(worker),
            Fault::WorkerCutOff(_, server, direction) => {
                Fault::WorkerCutOff(worker, server, direction)
            }
            Fault::WorkerSlow(_, delay) => Fault::WorkerSlow(worker, delay),
            Fault::WorkerReset(_) => Fault::WorkerReset(worker),
            Fault::WorkerRefused(_) => Fault::WorkerRefused(worker),
            Fault::ShareOfPartition(_, server) => Fault::ShareOfPartition(worker, server),
            Fault::WorkerThrottled(_) => Fault::WorkerThrottled(worker),
            Fault::WorkerMisled(_, code) => Fault::WorkerMisled(worker, code),
            Fault::WorkerStalled(_) => Fault::WorkerStalled(worker),
            other => other,
        }
    }

    /// The word for it in the history.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::ServerKilled(_) => "server-killed",
            Fault::ServerStopped(_) => "server-stopped",
            Fault::MajorityKilled(_) => "majority-killed",
            Fault::MajorityStopped(_) => "majority-stopped",
            Fault::ServerCutOff(_) => "server-cut-off",
            Fault::ServerMuted(_) => "server-muted",
            Fault::ServerDeafened(_) => "server-deafened",
            Fault::WayCut(..) => "one-way-cut",
            Fault::LinksSlow(_) => "links-slow",
            Fault::LinksReset(..) => "links-reset",
            Fault::WorkerKilled(_) => "worker-killed",
            Fault::WorkerStopped(_) => "worker-stopped",
            Fault::WorkerCutOff(..) => "worker-black-hole",
            Fault::WorkerSlow(..) => "worker-slow",
            Fault::WorkerReset(_) => "worker-reset",
            Fault::WorkerRefused(_) => "worker-refused",
            Fault::ShareOfPartition(..) => "partition-shared",
            Fault::NodeRemoved => "node-removed",
            Fault::WorkerThrottled(_) => "worker-throttled",
            Fault::WorkerMisled(..) => "worker-misled",
            Fault::WorkerStalled(_) => "worker-stalled",
        }
    }

    /// Whether both can be done at once: no two to the same server, links or worker, or the mending
    /// of one would mend the other.
    pub(crate) fn goes_with(self, other: Fault) -> bool {
        let meets = |one: Scope, two: Scope| {
            one.servers && two.servers || one.worker.is_some() && one.worker == two.worker
        };
        !meets(self.scope(), other.scope())
    }

    fn scope(self) -> Scope {
        let (servers, worker) = match self {
            Fault::WorkerKilled(worker)
            | Fault::WorkerStopped(worker)
            | Fault::WorkerCutOff(worker, ..)
            | Fault::WorkerSlow(worker, _)
            | Fault::WorkerReset(worker)
            | Fault::WorkerThrottled(worker)
            | Fault::WorkerMisled(worker, _)
            | Fault::WorkerStalled(worker)
            | Fault::WorkerRefused(worker) => (false, Some(worker)),
            Fault::ShareOfPartition(worker, _) => (true, Some(worker)),
            Fault::NodeRemoved => (false, None),
            _ => (true, None),
        };
        Scope { servers, worker }
    }

    pub(crate) fn strike(self, stage: &mut Stage<'_>, random: &mut Random) {
        // Of a removal it is not known yet whether there is anything to remove.
        match self.scope().worker {
            _ if self == Fault::NodeRemoved => {}
            Some(worker) => stage.note(format_args!("fault kind={} place={worker}", self.name())),
            None => stage.note(format_args!("fault kind={}", self.name())),
        }
        let (ensemble, links) = (&stage.ensemble, stage.ensemble.links());
        match self {
            Fault::ServerKilled(server) => ensemble.kill(server),
            Fault::ServerStopped(server) => ensemble.stop(server),
            Fault::MajorityKilled(left) => others(left).for_each(|server| ensemble.kill(server)),
            Fault::MajorityStopped(left) => others(left).for_each(|server| ensemble.stop(server)),
            Fault::ServerCutOff(server) => links.isolate(server),
            Fault::ServerMuted(server) => links.mute(server),
            Fault::ServerDeafened(server) => links.deafen(server),
            Fault::WayCut(from, to) => links.cut(from, to),
            Fault::LinksSlow(delay) => {
                for from in 0..SERVERS {
                    others(from).for_each(|to| links.delay(from, to, delay));
                }
            }
            Fault::LinksReset(one, other) => links.reset(one, other),
            Fault::WorkerKilled(worker) => {
                let seed = random.draw();
                let place = stage.crew.place_mut(worker);
                place.kill(&stage.history);
                place.start(stage.plan, &stage.history, seed);
            }
            Fault::WorkerStopped(worker) => stage.crew.place(worker).stop(&stage.history),
            Fault::WorkerCutOff(worker, spared, direction) => {
                let doors = stage.crew.place(worker).doors.iter().enumerate();
                let cut = doors.filter(|(server, _)| Some(*server) != spared);
                cut.for_each(|(_, door)| door.black_hole(direction));
            }
            Fault::WorkerSlow(worker, delay) => {
                stage
                    .crew
                    .place(worker)
                    .doors
                    .iter()
                    .for_each(|door| door.delay(delay));
            }
            Fault::WorkerReset(worker) => {
                stage
                    .crew
                    .place(worker)
                    .doors
                    .iter()
                    .for_each(Proxy::reset_all);
            }
            Fault::WorkerRefused(worker) => {
                for door in &stage.crew.place(worker).doors {
                    door.refuse();
                    door.reset_all();
                }
            }
            Fault::ShareOfPartition(worker, server) => {
                keep_with(&stage.crew.place(worker).doors, server, stage.plan.session);
                links.isolate(server);
            }
            Fault::NodeRemoved => remove_a_node(stage, random),
            Fault::WorkerThrottled(worker) => {
                for door in &stage.crew.place(worker).doors {
                    door.on_request(Matcher::one_in(3), Action::Refuse(THROTTLED));
                }
            }
            Fault::WorkerMisled(worker, code) => {
                for door in &stage.crew.place(worker).doors {
                    door.on_request(Matcher::one_in(19), Action::Refuse(code));
                    door.on_reply(Matcher::one_in(23), Action::Refuse(code));
                }
            }
            Fault::WorkerStalled(worker) => {
                let place = stage.crew.place(worker);
                let doors = place.doors.iter();
                doors.for_each(|door| door.black_hole(Direction::ToServer));
                place.load();
            }
        }
    }

    pub(crate) fn mend(self, stage: &mut Stage<'_>) {
        let ensemble = &stage.ensemble;
        match self {
            Fault::ServerKilled(_) | Fault::MajorityKilled(_) => restart_the_dead(stage),
            Fault::ServerStopped(_) | Fault::MajorityStopped(_) => {
                for index in 0..SERVERS {
                    let server = ensemble.server(index);
                    if server.is_alive() && process::is_stopped(server.pid()) {
                        ensemble.cont(index);
                    }
                }
            }
            Fault::WorkerStopped(worker) => stage.crew.place(worker).cont(&stage.history),
            Fault::WorkerCutOff(worker, ..)
            | Fault::WorkerSlow(worker, _)
            | Fault::WorkerThrottled(worker)
            | Fault::WorkerMisled(worker, _)
            | Fault::WorkerStalled(worker)
            | Fault::WorkerRefused(worker) => {
                stage.crew.place(worker).doors.iter().for_each(Proxy::pass);
            }
            Fault::ShareOfPartition(worker, _) => {
                ensemble.links().heal();
                stage.crew.place(worker).doors.iter().for_each(Proxy::pass);
            }
            Fault::LinksReset(..)
            | Fault::WorkerKilled(_)
            | Fault::WorkerReset(_)
            | Fault::NodeRemoved => return,
            Fault::ServerCutOff(_)
            | Fault::ServerMuted(_)
            | Fault::ServerDeafened(_)
            | Fault::WayCut(..)
            | Fault::LinksSlow(_) => ensemble.links().heal(),
        }
        stage.note(format_args!("mended kind={}", self.name()));
    }
}

/// What a fault touches.
#[derive(Debug, Clone, Copy)]
struct Scope {
    servers: bool,
    worker: Option<usize>,
}

/// Starts what is dead again, not waiting for it to serve. A start that fails because a passing
/// connection held the port leaves it dead, for the next time.
pub(crate) fn restart_the_dead(stage: &Stage<'_>) {
    let servers = (0..SERVERS).map(|index| stage.ensemble.server(index));
    servers
        .filter(|server| !server.is_alive())
        .for_each(Server::relaunch);
}

fn others(server: usize) -> impl Iterator<Item = usize> {
    (0..SERVERS).filter(move |other| *other != server)
}

/// Shuts all doors but the one to this server, and waits a while for the worker to sit down there:
/// who talks to a server when it is cut off is answered by it for as long as it hopes for its leader.
fn keep_with(doors: &[Proxy], server: usize, session: Duration) {
    let near = &doors[server];
    let before = near.counters();
    let far = doors
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != server);
    far.for_each(|(_, door)| {
        door.refuse();
        door.reset_all();
    });
    wait_for_some(session / 2, || {
        let now = near.counters();
        let welcomed = now.replied(opcode::CONNECT) > before.replied(opcode::CONNECT);
        (now.open > 0 && (before.open > 0 || welcomed)).then_some(())
    });
}

/// Deletes a contender's node, as an operator might. Only where each hold has one node that tells it from
/// all others: of several leases or parts the history would know one, and two plain nodes of one
/// name cannot be told apart.
fn remove_a_node(stage: &Stage<'_>, random: &mut Random) {
    if matches!(stage.plan.lock.as_str(), "semaphore" | "simple-mutex") {
        return;
    }
    let Some(folder) = aim::folder(&stage.plan.lock) else {
        return;
    };
    let server = stage.ensemble.server(random.place(SERVERS)).addr();
    // In an outage there is nobody to ask.
    let Ok(mut session) = RawSession::open(server, A_CALL) else {
        return;
    };
    let mut children = session.children(&folder).unwrap_or_default();
    children.sort();
    if !children.is_empty() {
        let node = format!("{folder}/{}", children[random.place(children.len())]);
        stage.note(format_args!("fault kind={}", Fault::NodeRemoved.name()));
        stage.note(format_args!("remove node={node}"));
        if session.delete(&node).is_ok() {
            stage.note(format_args!("removed node={node}"));
        }
    }
}
