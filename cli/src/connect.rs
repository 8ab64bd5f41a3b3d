//! The way to ZooKeeper that the options name.

use std::time::{Duration, Instant};

use zklock::{Client, ClientBuilder};

use crate::arguments::Connection;
use crate::status::Failure;

/// How long to look for a server.
pub(crate) const CONNECT: Duration = Duration::from_secs(15);

impl Connection {
    /// What to connect with.
    pub(crate) fn builder(&self) -> Result<ClientBuilder, Failure> {
        let mut builder = Client::builder(self.servers()?).session_timeout(self.session_timeout);
        for auth in &self.auth {
            let (scheme, credentials) = auth.split_once(':').ok_or_else(|| {
                // Not repeated: it may be a password.
                Failure::usage("--auth: write SCHEME:CREDENTIALS, as in digest:user:password")
            })?;
            builder = builder.auth(scheme, credentials);
        }
        Ok(builder)
    }

    pub(crate) fn servers(&self) -> Result<&str, Failure> {
        let servers = self
            .servers
            .as_deref()
            .filter(|servers| !servers.is_empty());
        servers.ok_or_else(|| {
            Failure::usage(
                "no servers are named; say --servers host:port,host:port or set ZK_CONNECT",
            )
        })
    }

    /// Connects, for those who look and do not wait.
    pub(crate) fn connect(&self) -> Result<Client, Failure> {
        Ok(self.builder()?.connect_timeout(CONNECT).connect()?)
    }
}

/// How long connecting may take, when all of it must be done by `deadline`.
pub(crate) fn connect_within(deadline: Option<Instant>) -> Duration {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    left.map_or(CONNECT, |left| left.min(CONNECT))
}
