//! The way to ZooKeeper that the options name.

use std::time::{Duration, Instant};

use zklock::{Client, ClientBuilder, ClientConfig, SaslConfig, TlsConfig};

use crate::arguments::Connection;
use crate::status::Failure;

/// How long to look for a server.
pub(crate) const CONNECT: Duration = Duration::from_secs(15);

impl Connection {
    /// What to connect with.
    pub(crate) fn builder(&self) -> Result<ClientBuilder, Failure> {
        let config = ClientConfig {
            servers: self.servers()?.to_owned(),
            sasl: account_from_env()?,
            tls: self.tls(),
            ..ClientConfig::default()
        };
        let mut builder = config.builder()?.session_timeout(self.session_timeout);
        for auth in &self.auth {
            let (scheme, credentials) = auth.split_once(':').ok_or_else(|| {
                // Not repeated: it may be a password.
                Failure::usage("--auth: write SCHEME:CREDENTIALS, as in digest:user:password")
            })?;
            builder = builder.auth(scheme, credentials);
        }
        Ok(builder)
    }

    /// TLS is asked for, by the switch or by any of its files; never guessed.
    fn tls(&self) -> Option<TlsConfig> {
        let tls = TlsConfig {
            ca: self.tls_ca.clone(),
            certificate: self.tls_certificate.clone(),
            key: self.tls_key.clone(),
            server_name: self.tls_server_name.clone(),
        };
        (self.tls || tls != TlsConfig::default()).then_some(tls)
    }

    pub(crate) fn servers(&self) -> Result<&str, Failure> {
        let servers = self
            .servers
            .as_deref()
            .filter(|servers| !servers.is_empty());
        servers.ok_or_else(|| {
            Failure::usage(
                "no servers are named; use --servers host:port,host:port or set ZK_CONNECT",
            )
        })
    }

    /// Connects, for those who look and do not wait.
    pub(crate) fn connect(&self) -> Result<Client, Failure> {
        Ok(self.builder()?.connect_timeout(CONNECT).connect()?)
    }
}

/// The account of SASL, which only the environment tells: a command line can be seen by others.
fn account_from_env() -> Result<Option<SaslConfig>, Failure> {
    let text = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
    match (text("ZK_SASL_USER"), text("ZK_SASL_PASSWORD")) {
        (None, None) => Ok(None),
        (Some(user), Some(password)) => Ok(Some(SaslConfig { user, password })),
        _ => Err(Failure::usage(
            "set both ZK_SASL_USER and ZK_SASL_PASSWORD, or neither",
        )),
    }
}

/// How long connecting may take, when all of it must be done by `deadline`.
pub(crate) fn connect_within(deadline: Option<Instant>) -> Duration {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    left.map_or(CONNECT, |left| left.min(CONNECT))
}
