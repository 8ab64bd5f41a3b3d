//! TLS for servers that have none: one [`Terminator`] before each, for as long as the tests run.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::certificates::{Authority, Certified};
use crate::terminator::Terminator;

/// Set to anything, it asks for TLS.
const SWITCH: &str = "ZKLOCK_TEST_TLS";

pub(crate) struct Cover {
    authority: Authority,
    certified: Certified,
    terminators: Mutex<HashMap<SocketAddr, Terminator>>,
}

/// What stands before the servers, if that was asked for.
pub(crate) fn get() -> Option<&'static Cover> {
    static COVER: OnceLock<Option<Cover>> = OnceLock::new();
    let cover = COVER.get_or_init(|| {
        std::env::var_os(SWITCH)?;
        let authority = Authority::new("tests");
        Some(Cover {
            certified: authority.certify("server", &["127.0.0.1"]),
            authority,
            terminators: Mutex::default(),
        })
    });
    cover.as_ref()
}

impl Cover {
    pub(crate) fn ca(&self) -> PathBuf {
        self.authority.file()
    }

    /// The connect string that leads to the same servers by TLS.
    pub(crate) fn before(&self, servers: &str) -> String {
        let (hosts, chroot) = match servers.find('/') {
            Some(at) => servers.split_at(at),
            None => (servers, ""),
        };
        let hosts: Vec<String> = hosts.split(',').map(|host| self.host(host)).collect();
        format!("{}{chroot}", hosts.join(","))
    }

    fn host(&self, host: &str) -> String {
        let target: SocketAddr = host.parse().expect("tests name addresses");
        let Certified {
            certificate, key, ..
        } = &self.certified;
        let terminators = self.terminators.lock();
        let mut terminators = terminators.unwrap_or_else(PoisonError::into_inner);
        let terminator = terminators
            .entry(target)
            .or_insert_with(|| Terminator::start(target, certificate, key));
        terminator.addr().to_string()
    }
}
