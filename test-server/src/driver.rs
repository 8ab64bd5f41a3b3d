//! The one thread of a server, or of all servers of an ensemble: it moves all bytes, keeps the time,
//! and carries out orders, one after the other.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt::{set_socket_linger, set_socket_reuseaddr};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::cluster::Cluster;
use crate::core::ConnectionId;
use crate::trouble::{Act, Machine, Whom};

/// What another thread has the server's thread do.
pub(crate) type Order = Box<dyn FnOnce(&mut Driver) + Send>;

/// Says when something has happened, to those who wait for something.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<u64>,
    changed: Condvar,
}

/// A port that stays ours while nothing listens on it.
#[derive(Debug)]
pub(crate) struct Port {
    address: SocketAddr,
    /// Bound, and never listening.
    _claim: OwnedFd,
}

#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) cluster: Cluster,
    /// Of each member.
    doors: Vec<Door>,
    /// Until when it looks for no new connections, as it could not take the last one.
    full_until: Option<Instant>,
    sockets: HashMap<SocketId, Socket>,
    orders: Receiver<Order>,
    woken: UnixStream,
    bell: Arc<Bell>,
    started: Instant,
    /// How far its clock was moved.
    moved: Duration,
    /// Whether anything was done since the bell was last rung. A look is nothing.
    happened: bool,
    quits: bool,
    buffer: Vec<u8>,
}

/// Where clients of one server come in.
#[derive(Debug)]
struct Door {
    port: Port,
    /// None while the server is stopped.
    listener: Option<TcpListener>,
}

/// A connection of a client with a member.
type SocketId = (usize, ConnectionId);

/// A member, for orders that are about it.
#[derive(Debug)]
pub(crate) struct Seat<'a> {
    pub(crate) driver: &'a mut Driver,
    member: usize,
}

#[derive(Debug)]
struct Socket {
    stream: TcpStream,
    unsent: Vec<u8>,
    /// Whether it ends when all is sent.
    finishes: bool,
    /// Whether nothing more is read from it.
    read_out: bool,
}

/// Who is ready.
enum Ready {
    Orders,
    Listener(usize),
    Socket(SocketId),
}

const BUFFER: usize = 64 * 1024;
/// How often a connection that ends is read from once more.
const LAST_READS: usize = 64;
/// How long it leaves new connections to the system when it cannot take one, as for want of descriptors. Nothing tells
/// it when there is room again.
const NO_ROOM: Duration = Duration::from_millis(50);
/// How long a wait without an end lasts before it looks again.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);
/// How far the clock can be moved: so that every sum of times that follows is one.
const FARTHEST: Duration = Duration::from_secs(1 << 32);

impl Port {
    /// Claims a port of the loopback interface; 0 means any.
    pub(crate) fn claim(number: u16) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let claim = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        // Without it nobody could listen beside this claim.
        set_socket_reuseaddr(&claim, true)?;
        rustix::net::bind(&claim, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, number))?;
        let address = SocketAddr::try_from(rustix::net::getsockname(&claim)?)?;
        Ok(Self {
            address,
            _claim: claim,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn listen(&self) -> io::Result<TcpListener> {
        let listener = TcpListener::bind(self.address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// How often it has rung.
    pub(crate) fn count(&self) -> u64 {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it has rung more often than so, or the time is over.
    pub(crate) fn wait(&self, heard: u64, deadline: Option<Instant>) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        while *rung == heard {
            let left = deadline.map_or(LONG, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(rung, left);
            (rung, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Seat<'_> {
    pub(crate) fn machine(&self) -> &Machine {
        self.driver.cluster.machine(self.member)
    }

    /// For what changes nothing that a client or another member can see.
    pub(crate) fn machine_mut(&mut self) -> &mut Machine {
        self.driver.cluster.machine_mut(self.member)
    }

    pub(crate) fn now(&self) -> Duration {
        self.driver.now()
    }

    /// Has something done to the member, and what follows from it done to the sockets.
    pub(crate) fn order<R>(&mut self, order: impl FnOnce(&mut Machine) -> R) -> R {
        let (member, now) = (self.member, self.now());
        self.driver
            .order(|cluster| cluster.order(member, now, order))
    }

    pub(crate) fn expire(&mut self, session: i64) -> bool {
        let (member, now) = (self.member, self.now());
        self.driver
            .order(|cluster| cluster.expire(member, session, now))
    }

    pub(crate) fn cut(&mut self, whom: Whom) {
        if whom == Whom::All {
            // Its client has been connected by the system, and counts on it.
            self.driver.accept(self.member);
        }
        self.order(|machine| machine.cut(whom));
    }

    pub(crate) fn move_clock(&mut self, by: Duration) {
        self.driver.move_clock(by);
    }

    /// Neither hears, says nor does anything until it goes on.
    pub(crate) fn pause(&mut self) {
        self.machine_mut().pause();
    }

    pub(crate) fn resume(&mut self) {
        let (member, now) = (self.member, self.now());
        self.driver.order(|cluster| cluster.resume(member, now));
    }

    pub(crate) fn stop(&mut self) {
        let (member, now) = (self.member, self.now());
        self.driver.doors[member].listener = None;
        self.driver.order(|cluster| cluster.stop(member, now));
    }

    pub(crate) fn restart(&mut self) -> io::Result<()> {
        if self.driver.doors[self.member].listener.is_some() {
            self.stop();
        }
        let door = &mut self.driver.doors[self.member];
        door.listener = Some(door.port.listen()?);
        let now = self.now();
        self.order(|machine| machine.start(now));
        Ok(())
    }
}

impl Driver {
    pub(crate) fn new(
        cluster: Cluster,
        ports: Vec<Port>,
        orders: Receiver<Order>,
        woken: UnixStream,
        bell: Arc<Bell>,
    ) -> io::Result<Self> {
        woken.set_nonblocking(true)?;
        let doors = ports.into_iter().map(|port| {
            let listener = Some(port.listen()?);
            Ok(Door { port, listener })
        });
        Ok(Self {
            doors: doors.collect::<io::Result<_>>()?,
            full_until: None,
            cluster,
            sockets: HashMap::new(),
            orders,
            woken,
            bell,
            started: Instant::now(),
            moved: Duration::ZERO,
            happened: false,
            quits: false,
            buffer: vec![0; BUFFER],
        })
    }

    /// Serves until it is told to quit, or nobody can tell it anything any more.
    pub(crate) fn run(mut self) {
        while !self.quits {
            self.turn();
        }
    }

    /// Waits until there is something to do, and does it.
    fn turn(&mut self) {
        let ready = self.wait();
        let now = self.now();
        for ready in ready {
            match ready {
                Ready::Orders => {
                    self.carry_out();
                    continue;
                }
                // An order before it may just have paused the server, and has said that it is.
                Ready::Listener(member) | Ready::Socket((member, _)) if self.is_paused(member) => {
                    continue;
                }
                Ready::Listener(member) => self.accept(member),
                Ready::Socket(id) => self.serve(id, now),
            }
            self.happened = true;
        }
        let now = self.now();
        let is_due = |deadline| deadline <= now;
        if self.cluster.deadline().is_some_and(is_due) {
            self.cluster.advance(now);
            self.happened = true;
        }
        self.act();
        if std::mem::take(&mut self.happened) {
            self.bell.ring();
        }
    }

    /// On the server's clock.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed() + self.moved
    }

    pub(crate) fn quit(&mut self) {
        self.quits = true;
    }

    /// Where orders about one member are carried out.
    pub(crate) fn seat(&mut self, member: usize) -> Seat<'_> {
        Seat {
            driver: self,
            member,
        }
    }

    /// Has something done, and what follows from it done to the sockets.
    pub(crate) fn order<R>(&mut self, order: impl FnOnce(&mut Cluster) -> R) -> R {
        let result = order(&mut self.cluster);
        self.act();
        self.happened = true;
        result
    }

    fn move_clock(&mut self, by: Duration) {
        self.moved = self.moved.saturating_add(by).min(FARTHEST);
        let now = self.now();
        self.order(|cluster| cluster.advance(now));
    }

    fn is_paused(&self, member: usize) -> bool {
        self.cluster.machine(member).is_paused()
    }

    fn wait(&self) -> Vec<Ready> {
        let mut fds = vec![PollFd::new(&self.woken, PollFlags::IN)];
        let mut who = vec![Ready::Orders];
        let full_for = self.full_for();
        for (member, door) in self.doors.iter().enumerate() {
            if let Some(listener) = door
                .listener
                .as_ref()
                .filter(|_| full_for.is_none() && !self.is_paused(member))
            {
                fds.push(PollFd::new(listener, PollFlags::IN));
                who.push(Ready::Listener(member));
            }
        }
        for (id, socket) in &self.sockets {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, !socket.read_out);
            flags.set(PollFlags::OUT, !socket.unsent.is_empty());
            if !flags.is_empty() && !self.is_paused(id.0) {
                fds.push(PollFd::new(&socket.stream, flags));
                who.push(Ready::Socket(*id));
            }
        }
        let due = self.cluster.deadline();
        let due = due.map(|deadline| deadline.saturating_sub(self.now()));
        let timeout = due.into_iter().chain(full_for).min();
        let timeout = timeout.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        // Interrupted by a signal, it looks again.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
        let ready = fds
            .iter()
            .zip(who)
            .filter(|(fd, _)| !fd.revents().is_empty());
        ready.map(|(_, who)| who).collect()
    }

    fn carry_out(&mut self) {
        // One byte or several: all orders are carried out.
        let _ = (&self.woken).read(&mut [0; 64]);
        loop {
            match self.orders.try_recv() {
                Ok(order) => order(self),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => return self.quit(),
            }
        }
    }

    /// How long it looks for no new connections, if so.
    fn full_for(&self) -> Option<Duration> {
        let left = self.full_until?.checked_duration_since(Instant::now());
        left.filter(|left| !left.is_zero())
    }

    fn accept(&mut self, member: usize) {
        while let Some(accepted) = self.doors[member]
            .listener
            .as_ref()
            .map(TcpListener::accept)
        {
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // Its client has gone, or a signal came.
                Err(error) if is_passing(&error) => continue,
                // The connection stays in the system's queue, so the listener would be ready again at once.
                Err(_) => {
                    self.full_until = Some(Instant::now() + NO_ROOM);
                    return;
                }
            };
            // A connection that is broken already shows it when it is read.
            let _ = stream.set_nodelay(true);
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let id = self.cluster.machine_mut(member).accept(peer);
            let socket = Socket {
                stream,
                unsent: Vec::new(),
                finishes: false,
                read_out: false,
            };
            self.sockets.insert((member, id), socket);
        }
    }

    fn serve(&mut self, id: SocketId, now: Duration) {
        let (member, connection) = id;
        let Some(socket) = self.sockets.get_mut(&id) else {
            return;
        };
        if !socket.unsent.is_empty() {
            self.flush(id);
        }
        let Some(socket) = self.sockets.get_mut(&id).filter(|socket| !socket.read_out) else {
            return;
        };
        match (&socket.stream).read(&mut self.buffer) {
            Ok(0) => {
                socket.read_out = true;
                self.cluster
                    .order(member, now, |machine| machine.end(connection, now));
            }
            Ok(count) => {
                let bytes = &self.buffer[..count];
                self.cluster.order(member, now, |machine| {
                    machine.receive(connection, bytes, now);
                });
            }
            Err(error) if is_later(&error) => {}
            Err(_) => {
                socket.read_out = true;
                self.cluster
                    .order(member, now, |machine| machine.end(connection, now));
            }
        }
        // An answer goes out before the next connection is served.
        self.act();
    }

    fn act(&mut self) {
        let mut touched = Vec::new();
        for (member, connection, act) in self.cluster.take_acts() {
            let id = (member, connection);
            let Some(socket) = self.sockets.get_mut(&id) else {
                continue;
            };
            match act {
                Act::Write(bytes) => socket.unsent.extend_from_slice(&bytes),
                Act::Finish => socket.finishes = true,
                Act::Reset => {
                    // What is unsent was sent before: the network has it. Then comes the reset.
                    let _ = (&socket.stream).write(&socket.unsent);
                    let _ = set_socket_linger(&socket.stream, Some(Duration::ZERO));
                    self.sockets.remove(&id);
                    continue;
                }
            }
            if !touched.contains(&id) {
                touched.push(id);
            }
        }
        for id in touched {
            self.flush(id);
        }
    }

    /// Sends as much as the network takes.
    fn flush(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(&id) else {
            return;
        };
        let mut sent = 0;
        let mut is_broken = false;
        while sent < socket.unsent.len() {
            match (&socket.stream).write(&socket.unsent[sent..]) {
                Ok(count) if count > 0 => sent += count,
                Err(error) if is_later(&error) => break,
                _ => {
                    is_broken = true;
                    break;
                }
            }
        }
        socket.unsent.drain(..sent);
        if is_broken {
            socket.unsent.clear();
        }
        if socket.finishes && socket.unsent.is_empty() {
            // Closed with something unread, it would be reset, and its last answer with it.
            drain(&socket.stream, &mut self.buffer);
            self.sockets.remove(&id);
        }
    }
}

/// Reads what is there, but no more than a bound: whoever goes on writing would hold the server's
/// one thread for as long as it likes.
fn drain(mut from: impl Read, buffer: &mut [u8]) {
    for _ in 0..LAST_READS {
        if !matches!(from.read(buffer), Ok(count) if count > 0) {
            return;
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
    )
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests;
