//! What ends TLS before a server that has none: to the client a server with a certificate, to the
//! server a client like any other. So a fault between the two is one of a connection by TLS too.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};

/// How long it looks for the server before it hangs up on the client.
const REACHED: Duration = Duration::from_secs(10);

const BUFFER_BYTES: usize = 128 * 1024;

/// Listens as long as the process lives.
#[derive(Debug)]
pub struct Terminator {
    address: SocketAddr,
}

impl Terminator {
    /// Passes on to `target` what clients say who take this certificate.
    pub fn start(target: SocketAddr, certificate: &Path, key: &Path) -> Terminator {
        let chain = CertificateDer::pem_file_iter(certificate).expect("a file");
        let chain = chain.collect::<Result<_, _>>().expect("certificates");
        let key = PrivateKeyDer::from_pem_file(key).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("they go with the provider")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("they belong together");
        let config = Arc::new(config);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        // It keeps little of what the other side does not take: that is to be felt at the source.
        set_socket_recv_buffer_size(&listener, BUFFER_BYTES).expect("a socket");
        let address = listener.local_addr().expect("bound");
        spawn("terminator", move || {
            for client in listener.incoming().flatten() {
                let config = Arc::clone(&config);
                spawn("terminator-in", move || {
                    // The client hears of it by the end of its connection.
                    let _ = serve(client, target, config);
                });
            }
        });
        Terminator { address }
    }

    pub fn addr(&self) -> SocketAddr {
        self.address
    }
}

/// One connection.
struct Session {
    client: TcpStream,
    server: TcpStream,
    tls: Mutex<ServerConnection>,
    /// What is sealed first is written first.
    writing: Mutex<()>,
}

fn serve(client: TcpStream, target: SocketAddr, config: Arc<ServerConfig>) -> io::Result<()> {
    let server = TcpStream::connect_timeout(&target, REACHED)?;
    set_socket_send_buffer_size(&server, BUFFER_BYTES)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let tls = ServerConnection::new(config).map_err(io::Error::other)?;
    let session = Arc::new(Session {
        client,
        server,
        tls: Mutex::new(tls),
        writing: Mutex::new(()),
    });
    let answers = Arc::clone(&session);
    spawn("terminator-out", move || {
        let _ = answers.to_client();
        answers.end();
    });
    let result = session.to_server();
    session.end();
    result
}

impl Session {
    fn to_server(&self) -> io::Result<()> {
        let mut sealed = [0; 16 * 1024];
        loop {
            let read = (&self.client).read(&mut sealed)?;
            if read == 0 {
                return Ok(());
            }
            let mut clear = Vec::new();
            let mut rest = &sealed[..read];
            let mut tls = locked(&self.tls);
            let mut result = Ok(());
            while !rest.is_empty() && result.is_ok() {
                tls.read_tls(&mut rest)?;
                result = tls
                    .process_new_packets()
                    .map_err(io::Error::other)
                    .map(drop);
                let mut part = vec![0; 32 * 1024];
                while let Ok(read @ 1..) = tls.reader().read(&mut part) {
                    clear.extend_from_slice(&part[..read]);
                }
            }
            drop(tls);
            self.write_sealed(&[])?;
            result?;
            (&self.server).write_all(&clear)?;
        }
    }

    fn to_client(&self) -> io::Result<()> {
        let mut clear = [0; 16 * 1024];
        loop {
            let read = (&self.server).read(&mut clear)?;
            if read == 0 {
                return Ok(());
            }
            self.write_sealed(&clear[..read])?;
        }
    }

    fn write_sealed(&self, clear: &[u8]) -> io::Result<()> {
        let _order = locked(&self.writing);
        let mut sealed = Vec::new();
        let mut tls = locked(&self.tls);
        tls.writer().write_all(clear)?;
        while tls.wants_write() {
            tls.write_tls(&mut sealed)?;
        }
        drop(tls);
        (&self.client).write_all(&sealed)
    }

    /// The end of one side is that of the other.
    fn end(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(body).expect("a thread can be started");
}
