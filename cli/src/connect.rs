//! The way to ZooKeeper that the options, the environment and a file name.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use zklock::{AuthConfig, Client, ClientBuilder, ClientConfig, TlsConfig};

use crate::arguments::{ConnectionArguments, Dialect, WhoMay};
use crate::say;
use crate::speak::{self, IfLong};
use crate::status::Failure;

/// How long to look for a server, if nobody says otherwise.
const CONNECT: Duration = Duration::from_secs(15);
const SESSION: Duration = Duration::from_secs(10);

/// How to reach ZooKeeper, with everything decided.
#[derive(Debug)]
pub(crate) struct Connection {
    config: ClientConfig,
    /// What is asked for.
    pub(crate) session_timeout: Duration,
    /// How long to look for a server.
    pub(crate) connect_timeout: Duration,
    pub(crate) dialect: Dialect,
}

impl ConnectionArguments {
    /// Puts the file, the environment and the flags together; each wins over those before.
    pub(crate) fn resolve(&self) -> Result<Connection, Failure> {
        let file = self.config.as_deref().map_or_else(
            || Ok(ClientConfig::default()),
            |file| {
                read(file).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))
            },
        )?;
        // Of the file itself: what the environment says is not in it.
        let has_secrets = !file.auth.is_empty() || file.sasl.is_some();
        let mut config = file.with_env()?;
        if let Some(servers) = &self.servers {
            config.servers.clone_from(servers);
        }
        if config.servers.is_empty() {
            return Err(Failure::usage(
                "no servers are named; use --servers host:port,host:port or set ZK_CONNECT",
            ));
        }
        self.add_credentials(&mut config)?;
        self.add_tls(&mut config)?;
        if let Some(who_may) = self.acl {
            config.creator_all = who_may == WhoMay::CreatorAll;
        }
        if let Some(tick) = self.tick_time {
            // The servers count theirs in milliseconds. Nonsense is refused by the library.
            config.tick_time_ms = Some(u64::try_from(tick.as_millis()).unwrap_or(u64::MAX));
        }
        self.tell_of_open_files(&config, has_secrets);
        let or = |flag: Option<Duration>, setting: Option<u64>, default| {
            flag.or(setting.map(Duration::from_millis))
                .unwrap_or(default)
        };
        Ok(Connection {
            session_timeout: or(self.session_timeout, config.session_timeout_ms, SESSION),
            connect_timeout: or(self.connect_timeout, config.connect_timeout_ms, CONNECT),
            dialect: self.dialect,
            config,
        })
    }

    /// Says which files with secrets others on this machine can read; that of `--config` is one if it
    /// `has_secrets`.
    fn tell_of_open_files(&self, config: &ClientConfig, has_secrets: bool) {
        let variable = |name| env::var_os(name).map(PathBuf::from);
        let files = [
            self.auth_file.clone().or_else(|| variable("ZK_AUTH_FILE")),
            variable("ZK_SASL_PASSWORD_FILE"),
            config.tls.as_ref().and_then(|tls| tls.key.clone()),
            self.config.clone().filter(|_| has_secrets),
        ];
        for file in files.into_iter().flatten() {
            if is_open(&file) {
                say(format_args!(
                    "{}: it has secrets, and others can read it (chmod o= helps)",
                    file.display()
                ));
            }
        }
    }

    fn add_credentials(&self, config: &mut ClientConfig) -> Result<(), Failure> {
        let mut named = Vec::new();
        for auth in &self.auth {
            let (scheme, credentials) = auth.split_once(':').ok_or_else(|| {
                // Not repeated: it may be a password.
                Failure::usage("--auth: write SCHEME:CREDENTIALS, as in digest:user:password")
            })?;
            named.push(AuthConfig {
                scheme: scheme.to_owned(),
                credentials: credentials.to_owned(),
            });
        }
        if let Some(file) = &self.auth_file {
            named.extend(AuthConfig::read(file)?);
        }
        if !named.is_empty() {
            config.auth = named;
        }
        Ok(())
    }

    /// TLS is asked for, by the switch or by any of its files; never guessed.
    fn add_tls(&self, config: &mut ClientConfig) -> Result<(), Failure> {
        let Self {
            tls_ca,
            tls_certificate,
            tls_key,
            tls_server_name,
            ..
        } = self.clone();
        let files = [&tls_ca, &tls_certificate, &tls_key];
        if self.tls || tls_server_name.is_some() || files.iter().any(|file| file.is_some()) {
            let tls = config.tls.get_or_insert_with(TlsConfig::default);
            tls.ca = tls_ca.or(tls.ca.take());
            tls.certificate = tls_certificate.or(tls.certificate.take());
            tls.key = tls_key.or(tls.key.take());
            tls.server_name = tls_server_name.or(tls.server_name.take());
        }
        let halves = |tls: &TlsConfig| tls.certificate.is_some() != tls.key.is_some();
        if config.tls.as_ref().is_some_and(halves) {
            return Err(Failure::usage(
                "--tls-certificate (ZK_TLS_CERTIFICATE) and --tls-key (ZK_TLS_KEY) go together: \
                 name both, or neither",
            ));
        }
        Ok(())
    }
}

#[cfg(unix)]
fn is_open(file: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(file).is_ok_and(|file| file.is_file() && file.mode() & 0o004 != 0)
}

#[cfg(not(unix))]
fn is_open(_file: &Path) -> bool {
    false
}

fn read(file: &Path) -> Result<ClientConfig, Box<dyn std::error::Error>> {
    Ok(serde_json::from_slice(&fs::read(file)?)?)
}

impl Connection {
    /// What to connect with.
    pub(crate) fn builder(&self) -> Result<ClientBuilder, Failure> {
        let builder = self.config.builder()?;
        Ok(builder.session_timeout(self.session_timeout))
    }

    /// The servers' tick, if it was said.
    pub(crate) fn tick_time(&self) -> Option<Duration> {
        self.config.tick_time_ms.map(Duration::from_millis)
    }

    pub(crate) fn servers(&self) -> &str {
        &self.config.servers
    }

    pub(crate) fn speaks_tls(&self) -> bool {
        self.config.tls.is_some()
    }

    /// For one server alone.
    pub(crate) fn builder_for(&self, server: &str) -> Result<ClientBuilder, Failure> {
        let mut config = self.config.clone();
        server.clone_into(&mut config.servers);
        Ok(config.builder()?.session_timeout(self.session_timeout))
    }

    /// Connects, for those who look and do not wait.
    pub(crate) fn connect(&self) -> Result<Client, Failure> {
        let builder = self.builder()?.connect_timeout(self.connect_timeout);
        let _waiting = self.tell_if_long(self.connect_timeout);
        Ok(builder.connect()?)
    }

    /// While servers are looked for, for that long at most.
    pub(crate) fn tell_if_long(&self, within: Duration) -> IfLong {
        speak::if_long(format!(
            "no answer so far from {}; looking for up to {}",
            self.servers(),
            humantime::format_duration(within)
        ))
    }

    /// How long connecting may take, when all of it must be done by `deadline`.
    pub(crate) fn connect_within(&self, deadline: Option<Instant>) -> Duration {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        left.map_or(self.connect_timeout, |left| left.min(self.connect_timeout))
    }
}
