//! Loopback ports that stay ours while nothing listens on them.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

/// Below the range from which the kernel serves outgoing connections and
/// `bind(0)`: a port from there could be taken by any client of this machine
/// while its server is down for a restart.
const RANGE: std::ops::Range<u16> = 12_000..32_000;

const ATTEMPTS: u32 = 1_000;

/// A claimed TCP port of 127.0.0.1.
///
/// The claim is a UDP socket bound to the same number: it does not stand in
/// the way of a TCP listener, excludes every other test bed on the machine,
/// and vanishes with this process.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _claim: UdpSocket,
}

impl Port {
    /// Claims a port that nothing listens on now.
    pub fn claim() -> Port {
        let random = RandomState::new();
        (0..ATTEMPTS)
            .find_map(|attempt| {
                let offset = random.hash_one(attempt) % u64::from(RANGE.end - RANGE.start);
                let offset = u16::try_from(offset).expect("smaller than the range");
                Port::try_claim(RANGE.start + offset)
            })
            .unwrap_or_else(|| panic!("no free port found in {RANGE:?} on 127.0.0.1"))
    }

    fn try_claim(number: u16) -> Option<Port> {
        let at = (Ipv4Addr::LOCALHOST, number);
        let claim = UdpSocket::bind(at).ok()?;
        // Somebody who knows nothing of claims may be listening.
        TcpListener::bind(at).ok()?;
        Some(Port {
            number,
            _claim: claim,
        })
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.number))
    }
}
