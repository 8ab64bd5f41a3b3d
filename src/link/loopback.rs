//! The loopback port that the crate comes to: open for one, and only for the one.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::core::frame::{self, ConnectRequest, ConnectResponse};
use super::epoch::Epoch;
use super::from_crate;
use super::guest::Guest;
use super::wire::{Wire, say};

/// What a stranger who says nothing can cost.
const PATIENCE: Duration = Duration::from_millis(200);
/// A handshake has 45 bytes.
const MAX_HANDSHAKE_BYTES: usize = 256;
const SHORTEST_SECRET_MS: u32 = 3_600_000;
/// What the crate is granted. It pings after two thirds of that. If ever it is hung up on, it dials
/// the closed port without a pause, until a reconnect finds the last ping older than all of it: then
/// its thread ends, and whoever calls hears `ConnectionLoss`.
const GRANTED_MS: i32 = 3_000;

/// Listens for the crate.
///
/// Any process of the machine can connect to a loopback port, so the crate is given a secret to
/// show: a random session timeout, which its first frame repeats. Whoever does not show it is
/// dropped. As soon as one has, the port is closed for good: the crate never has to come again,
/// because the link answers for a broken connection itself.
pub(crate) struct LoopbackListener {
    listener: TcpListener,
    secret_ms: i32,
    wire: Arc<Wire>,
    /// The session that the handle will be on.
    epoch: Arc<Epoch>,
}

/// A handle that has come in.
pub(crate) struct Admitted(Arc<Guest>);

impl std::fmt::Debug for Admitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_over = self.is_over();
        f.debug_struct("Admitted")
            .field("is_over", &is_over)
            .finish_non_exhaustive()
    }
}

impl Admitted {
    /// Whether every call of the handle would fail from now on.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_gone() || !self.0.epoch.is_alive()
    }
}

impl LoopbackListener {
    pub(super) fn open(wire: Arc<Wire>, epoch: Arc<Epoch>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
        let range = u64::from(i32::MAX.unsigned_abs() - SHORTEST_SECRET_MS);
        let secret = u64::from(SHORTEST_SECRET_MS) + random % range;
        Ok(Self {
            listener,
            secret_ms: i32::try_from(secret).expect("below i32::MAX"),
            wire,
            epoch,
        })
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What the crate is to be given as its session timeout.
    pub(crate) fn secret_timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.secret_ms.unsigned_abs()))
    }

    /// Lets the crate in, once it has begun to connect, and serves it on a thread of its own, which
    /// ends when the crate has gone.
    ///
    /// If it does not come in time, it must not find a closed port: it would dial it without a
    /// pause, for ever, and its good-bye would never be answered. So the port stays open on that
    /// thread, until the crate has come and gone.
    pub(crate) fn admit(self, deadline: Instant) -> io::Result<Admitted> {
        let wire = Arc::clone(&self.wire);
        let listener = Arc::new(self);
        let kept = Arc::clone(&listener);
        let (tell, told) = crossbeam_channel::bounded(1);
        let serve = move || {
            let guest = listener.wait_for_guest(&wire);
            // The port is closed before anybody hears that the crate is in.
            drop(listener);
            // Nobody may wait for it any more.
            let _ = tell.send(Admitted(Arc::clone(&guest)));
            from_crate::run(&wire, &guest);
        };
        let spawned = std::thread::Builder::new().name("zklock-door".to_owned());
        if let Err(error) = spawned.spawn(serve) {
            // No thread is left to answer it; at a port where nobody accepts it waits at least.
            std::mem::forget(kept);
            return Err(error);
        }
        drop(kept);
        told.recv_deadline(deadline).map_err(|_| {
            failed("the zookeeper crate did not come to the port that was opened for it")
        })
    }

    fn wait_for_guest(&self, wire: &Wire) -> Arc<Guest> {
        loop {
            let (stream, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    say!(
                        wire,
                        Warn,
                        "the loopback port of the client: {error}; accepting again"
                    );
                    // No descriptor may be left, and that lasts.
                    std::thread::sleep(PATIENCE);
                    continue;
                }
            };
            let checked = self.check(&stream).and_then(|()| stream.try_clone());
            let guest = checked.and_then(|stream| {
                let id = wire.state.lock().core.handle_enters(self.epoch.number());
                Guest::new(id, Arc::clone(&self.epoch), stream)
                    .inspect_err(|_| drop(wire.state.lock().core.handle_leaves(id)))
            });
            match guest {
                Ok(guest) => return Arc::new(guest),
                Err(why) => {
                    let _ = stream.shutdown(Shutdown::Both);
                    say!(
                        wire,
                        Warn,
                        "dropped a stranger from {peer} at the client's loopback port: {why}"
                    );
                }
            }
        }
    }

    /// Reads the handshake, checks the secret, and answers.
    fn check(&self, mut stream: &TcpStream) -> io::Result<()> {
        let refused = |why| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        let until = Instant::now() + PATIENCE;
        let mut length = [0; 4];
        read_until(stream, &mut length, until)?;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > MAX_HANDSHAKE_BYTES {
            return refused("its first frame is too long");
        }
        let mut body = vec![0; length];
        read_until(stream, &mut body, until)?;
        match ConnectRequest::parse(&body) {
            Some(request) if request.timeout_ms == self.secret_ms => {}
            _ => return refused("it does not know the secret"),
        }
        let (session_id, _) = uuid::Uuid::new_v4().as_u64_pair();
        let granted = ConnectResponse {
            protocol: frame::PROTOCOL,
            timeout_ms: GRANTED_MS,
            session_id: i64::try_from(session_id >> 1).expect("63 bits"),
            password: uuid::Uuid::new_v4().into_bytes().to_vec(),
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(None)?;
        stream.write_all(&granted.to_frame())
    }
}

fn failed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, why)
}

fn read_until(mut stream: &TcpStream, mut bytes: &mut [u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => bytes = &mut bytes[read..],
        }
        if left.is_zero() && !bytes.is_empty() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::super::tests::{Deaf, config};
    use super::*;

    fn knock(address: SocketAddr, timeout_ms: i32) -> TcpStream {
        let mut stream = TcpStream::connect(address).expect("it listens");
        let request = ConnectRequest {
            last_zxid_seen: 0,
            timeout_ms,
            session_id: 0,
            password: vec![0; 16],
        };
        stream.write_all(&request.to_frame()).expect("read");
        stream
    }

    fn loopback() -> LoopbackListener {
        let wire = Wire::new(config(Vec::new()), Arc::new(Deaf));
        let epoch = Epoch::new(1, 7, Duration::from_secs(3600));
        LoopbackListener::open(wire, Arc::new(epoch)).expect("a port")
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    /// Nothing but the end of the stream.
    fn is_dropped(mut stream: TcpStream) -> bool {
        let limit = Some(Duration::from_secs(30));
        stream.set_read_timeout(limit).expect("a socket");
        match stream.read(&mut [0; 64]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    #[test]
    fn strangers_get_nothing_and_disturb_nobody() {
        let loopback = loopback();
        let (address, secret) = (loopback.address().expect("open"), loopback.secret_ms);
        let silent = TcpStream::connect(address).expect("it listens");
        let wrong = knock(address, secret ^ 1);
        let mut long = TcpStream::connect(address).expect("it listens");
        long.write_all(&i32::MAX.to_be_bytes()).expect("read");
        let mut negative = TcpStream::connect(address).expect("it listens");
        negative.write_all(&(-1_i32).to_be_bytes()).expect("read");
        let right = knock(address, secret);
        loopback.admit(soon()).expect("the right one came");
        for stranger in [silent, wrong, long, negative] {
            assert!(is_dropped(stranger));
        }
        // The right one was greeted.
        let mut greeting = [0; 41];
        (&right).read_exact(&mut greeting).expect("greeted");
        let response = ConnectResponse::parse(&greeting[4..]).expect("well-formed");
        assert_eq!(response.timeout_ms, GRANTED_MS);
        // And now there is no port any more.
        TcpStream::connect(address).expect_err("closed");
    }

    /// It would spin at a closed port, and wait for ever for an answer to its good-bye.
    #[test]
    fn a_crate_that_comes_too_late_is_let_in_and_let_go() {
        let loopback = loopback();
        let (address, secret) = (loopback.address().expect("open"), loopback.secret_ms);
        let error = loopback.admit(Instant::now()).expect_err("nobody comes");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(TcpStream::connect(address).expect("still open"));
        let mut late = knock(address, secret);
        late.set_read_timeout(Some(Duration::from_secs(30)))
            .expect("a socket");
        late.read_exact(&mut [0; 41]).expect("greeted");
        let reply = |stream: &mut TcpStream| {
            let mut reply = [0; 20];
            stream.read_exact(&mut reply).expect("answered");
            reply
        };
        late.write_all(&frame::request(1, 2)).expect("read");
        assert_eq!(reply(&mut late)[..], frame::reply(1, -4));
        late.write_all(&frame::request(2, frame::OP_CLOSE))
            .expect("read");
        assert_eq!(reply(&mut late)[..], frame::reply(2, 0));
        TcpStream::connect(address).expect_err("closed");
    }

    #[test]
    fn secrets_differ_and_are_long_timeouts() {
        let (one, other) = (loopback(), loopback());
        assert_ne!(one.secret_ms, other.secret_ms);
        assert!(one.secret_timeout() >= Duration::from_secs(3600));
    }
}
