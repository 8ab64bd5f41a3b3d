//! [`ClientConfig`]: how to connect, as plain data.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Client, ClientBuilder};
use crate::error::{Error, Result};
use crate::session::Acl;

/// How to connect, as plain data: from the environment or, with the feature `serde`, from a file of
/// settings.
///
/// A field that is left out has the default of [`Client::builder`]. An unknown name in a file is an
/// error, so that a typing error does not go unnoticed. It can be read but not serialized, because
/// it may contain secrets; neither `Debug` nor an error of reading shows them.
///
/// ```
/// # #[cfg(feature = "serde")] {
/// let config: zklock::ClientConfig = serde_json::from_str(
///     r#"{
///         "servers": "zk1:2281,zk2:2281/jobs",
///         "session_timeout_ms": 20000,
///         "tls": { "ca": "/etc/zk/ca.pem", "certificate": "/etc/zk/me.pem", "key": "/etc/zk/me.key" },
///         "creator_all": true
///     }"#,
/// )?;
/// assert_eq!(config.session_timeout_ms, Some(20_000));
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct ClientConfig {
    /// ZooKeeper's connect string; see [`Client::connect`].
    pub servers: String,
    /// See [`ClientBuilder::session_timeout`].
    pub session_timeout_ms: Option<u64>,
    /// See [`ClientBuilder::connect_timeout`].
    pub connect_timeout_ms: Option<u64>,
    /// See [`ClientBuilder::tick_time`].
    pub tick_time_ms: Option<u64>,
    /// See [`ClientBuilder::auth`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "secrets::list"))]
    pub auth: Vec<AuthConfig>,
    /// See `ClientBuilder::sasl_digest_md5`.
    pub sasl: Option<SaslConfig>,
    /// See `ClientBuilder::tls`.
    pub tls: Option<TlsConfig>,
    /// Whether only clients with the same credentials may touch what this one makes; see
    /// [`Acl::creator_all`].
    pub creator_all: bool,
    /// See [`ClientBuilder::create_chroot`].
    pub create_chroot: bool,
}

/// Credentials in a [`ClientConfig`].
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AuthConfig {
    /// Such as `digest`.
    pub scheme: String,
    /// Such as `user:password`.
    pub credentials: String,
}

/// An account in a [`ClientConfig`].
///
/// ```no_run
/// # fn main() -> zklock::Result<()> {
/// let mut config = zklock::ClientConfig::from_env()?;
/// config.sasl = Some(zklock::SaslConfig {
///     user: "batch".to_owned(),
///     password: std::fs::read_to_string("/run/secrets/zk").unwrap_or_default(),
/// });
/// let client = config.builder()?.connect()?; // needs the feature `sasl`
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SaslConfig {
    /// Its name.
    pub user: String,
    /// Its password.
    pub password: String,
}

/// TLS in a [`ClientConfig`]: files in PEM.
///
/// ```no_run
/// # fn main() -> zklock::Result<()> {
/// let mut config = zklock::ClientConfig::from_env()?;
/// config.tls = Some(zklock::TlsConfig {
///     ca: Some("/etc/zk/ca.pem".into()), // no client certificate: the servers know us by `auth`
///     server_name: Some("zookeeper.internal".to_owned()),
///     ..zklock::TlsConfig::default()
/// });
/// let client = config.builder()?.connect()?; // needs the feature `tls`
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct TlsConfig {
    /// The CAs that sign the servers' certificates. Defaults to those that the system trusts.
    pub ca: Option<PathBuf>,
    /// A client certificate; goes with `key`.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// The name in the servers' certificates, if it is not their host name.
    pub server_name: Option<String>,
}

impl ClientConfig {
    /// Reads the settings from environment variables; [`Client::from_env`] lists them.
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// let mut config = zklock::ClientConfig::from_env()?;
    /// // Unless the environment says something else.
    /// config.session_timeout_ms.get_or_insert(20_000);
    /// let client = config.builder()?.connect()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if `ZK_CONNECT` is missing, a variable makes no sense, or a
    /// file of credentials cannot be read.
    pub fn from_env() -> Result<Self> {
        let config = Self::default().with_env()?;
        if config.servers.is_empty() {
            let wanted = "ZK_CONNECT is not set; it names the servers: host:port,host:port/chroot";
            return Err(Error::invalid(wanted));
        }
        Ok(config)
    }

    /// These settings, but for those that the environment says otherwise: for programs whose file of
    /// settings the environment overrides. Here `ZK_CONNECT` need not be set.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// let from_a_file = zklock::ClientConfig {
    ///     servers: "zk1,zk2,zk3/jobs".to_owned(),
    ///     ..zklock::ClientConfig::default()
    /// };
    /// let config = from_a_file.with_env()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if a variable makes no sense, or a file of credentials
    /// cannot be read.
    pub fn with_env(self) -> Result<Self> {
        self.with_variables(|name| match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => {
                Err(Error::invalid(format!("{name} is not text")))
            }
        })
    }

    /// An empty variable counts as none.
    fn with_variables(mut self, variable: impl Fn(&str) -> Result<Option<String>>) -> Result<Self> {
        let text = |name| Ok::<_, Error>(variable(name)?.filter(|value| !value.is_empty()));
        let milliseconds = |name| {
            let wrong = |_| Error::invalid(format!("{name}: it must be a number of milliseconds"));
            text(name)?
                .map(|value| value.parse().map_err(wrong))
                .transpose()
        };
        if let Some(servers) = text("ZK_CONNECT")? {
            self.servers = servers;
        }
        if let Some(timeout) = milliseconds("ZK_SESSION_TIMEOUT_MS")? {
            self.session_timeout_ms = Some(timeout);
        }
        if let Some(timeout) = milliseconds("ZK_CONNECT_TIMEOUT_MS")? {
            self.connect_timeout_ms = Some(timeout);
        }
        if let Some(tick) = milliseconds("ZK_TICK_TIME_MS")? {
            self.tick_time_ms = Some(tick);
        }
        match (text("ZK_AUTH")?, text("ZK_AUTH_FILE")?) {
            (None, None) => {}
            (Some(auth), None) => self.auth = vec![AuthConfig::parse("ZK_AUTH", &auth)?],
            (None, Some(file)) => self.auth = AuthConfig::read(file)?,
            (Some(_), Some(_)) => {
                return Err(Error::invalid("set ZK_AUTH or ZK_AUTH_FILE, not both"));
            }
        }
        let password = match (text("ZK_SASL_PASSWORD")?, text("ZK_SASL_PASSWORD_FILE")?) {
            (password, None) => password,
            (None, Some(file)) => Some(secret_in(Path::new(&file))?),
            (Some(_), Some(_)) => {
                let wanted = "set ZK_SASL_PASSWORD or ZK_SASL_PASSWORD_FILE, not both";
                return Err(Error::invalid(wanted));
            }
        };
        self.set_sasl(text("ZK_SASL_USER")?, password)?;
        let tls = TlsConfig {
            ca: text("ZK_TLS_CA")?.map(PathBuf::from),
            certificate: text("ZK_TLS_CERTIFICATE")?.map(PathBuf::from),
            key: text("ZK_TLS_KEY")?.map(PathBuf::from),
            server_name: text("ZK_TLS_SERVER_NAME")?,
        };
        match text("ZK_TLS")?.as_deref() {
            Some("1" | "true" | "yes") => self.tls.get_or_insert_default().set(tls),
            Some("0" | "false" | "no") => self.tls = None,
            Some(_) => return Err(Error::invalid("ZK_TLS: it must be yes or no")),
            // Named files are meant to be used.
            None if tls != TlsConfig::default() => self.tls.get_or_insert_default().set(tls),
            None => {}
        }
        match text("ZK_ACL")?.as_deref() {
            None => {}
            Some("open") => self.creator_all = false,
            Some("creator-all") => self.creator_all = true,
            Some(_) => return Err(Error::invalid("ZK_ACL: it must be open or creator-all")),
        }
        Ok(self)
    }

    /// What is not named stays as it was; an account needs both.
    fn set_sasl(&mut self, user: Option<String>, password: Option<String>) -> Result<()> {
        let (old_user, old_password) = match self.sasl.take() {
            Some(SaslConfig { user, password }) => (Some(user), Some(password)),
            None => (None, None),
        };
        self.sasl = match (user.or(old_user), password.or(old_password)) {
            (None, None) => None,
            (Some(user), Some(password)) => Some(SaslConfig { user, password }),
            _ => {
                let wanted = "set both ZK_SASL_USER and ZK_SASL_PASSWORD (or \
                     ZK_SASL_PASSWORD_FILE), or neither";
                return Err(Error::invalid(wanted));
            }
        };
        Ok(())
    }

    /// A builder with these settings; add more to it, and connect.
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// use zklock::{AuthConfig, ClientConfig, RetryPolicy};
    ///
    /// let config = ClientConfig {
    ///     servers: "zk1,zk2,zk3/jobs".to_owned(),
    ///     auth: vec![AuthConfig { scheme: "digest".into(), credentials: "batch:secret".into() }],
    ///     creator_all: true,
    ///     ..ClientConfig::default()
    /// };
    /// // What plain data cannot say is added to the builder.
    /// let client = config.builder()?.retry(RetryPolicy::new().give_up_after(None)).connect()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if a TLS file cannot be used, or a setting needs a feature
    /// (`tls` or `sasl`) that was not compiled in.
    pub fn builder(&self) -> Result<ClientBuilder> {
        let mut builder = Client::builder(&self.servers).create_chroot(self.create_chroot);
        if let Some(ms) = self.session_timeout_ms {
            builder = builder.session_timeout(Duration::from_millis(ms));
        }
        if let Some(ms) = self.connect_timeout_ms {
            builder = builder.connect_timeout(Duration::from_millis(ms));
        }
        if let Some(ms) = self.tick_time_ms {
            builder = builder.tick_time(Duration::from_millis(ms));
        }
        for auth in &self.auth {
            builder = builder.auth(&auth.scheme, &*auth.credentials);
        }
        if self.creator_all {
            builder = builder.acl(Acl::creator_all());
        }
        if let Some(sasl) = &self.sasl {
            builder = sasl.add_to(builder)?;
        }
        match &self.tls {
            Some(tls) => tls.add_to(builder),
            None => Ok(builder),
        }
    }
}

impl AuthConfig {
    /// Credentials from a file: one `scheme:credentials` a line, as in `digest:user:password`. Empty
    /// lines, and lines that begin with `#`, are left out.
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// let mut config = zklock::ClientConfig::from_env()?;
    /// config.auth = zklock::AuthConfig::read("/run/credentials/batch.service/zookeeper")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the file cannot be read, has a line of another form, or
    /// no line at all.
    pub fn read(file: impl AsRef<Path>) -> Result<Vec<Self>> {
        let file = file.as_ref();
        let text = secret_in(file)?;
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let name = file.display().to_string();
        let all: Vec<_> = lines
            .map(|line| Self::parse(&name, line))
            .collect::<Result<_>>()?;
        if all.is_empty() {
            return Err(Error::invalid(format!(
                "{name}: there are no credentials in it"
            )));
        }
        Ok(all)
    }

    /// `scheme:credentials`, from what has the name `whose`.
    fn parse(whose: &str, text: &str) -> Result<Self> {
        // Not repeated in the error: it may be a password.
        let (scheme, credentials) = text.split_once(':').ok_or_else(|| {
            Error::invalid(format!(
                "{whose}: write scheme:credentials, as in digest:user:password"
            ))
        })?;
        Ok(Self {
            scheme: scheme.to_owned(),
            credentials: credentials.to_owned(),
        })
    }
}

/// The text of a file, without the end of its last line.
fn secret_in(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Error::invalid(format!("{}: {error}", file.display())))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

impl SaslConfig {
    #[cfg(feature = "sasl")]
    #[expect(
        clippy::unnecessary_wraps,
        reason = "it fails where it is not compiled in"
    )]
    fn add_to(&self, builder: ClientBuilder) -> Result<ClientBuilder> {
        Ok(builder.sasl_digest_md5(&self.user, &self.password))
    }

    #[cfg(not(feature = "sasl"))]
    #[expect(clippy::unused_self, reason = "it is used where it is compiled in")]
    fn add_to(&self, _builder: ClientBuilder) -> Result<ClientBuilder> {
        let why = "SASL was asked for, but zklock was compiled without its feature `sasl`";
        Err(Error::invalid(why))
    }
}

impl TlsConfig {
    /// What `other` does not name stays as it was.
    fn set(&mut self, other: Self) {
        self.ca = other.ca.or(self.ca.take());
        self.certificate = other.certificate.or(self.certificate.take());
        self.key = other.key.or(self.key.take());
        self.server_name = other.server_name.or(self.server_name.take());
    }

    #[cfg(feature = "tls")]
    fn add_to(&self, builder: ClientBuilder) -> Result<ClientBuilder> {
        use crate::link::Tls;

        let mut tls = match &self.ca {
            Some(ca) => Tls::pem(ca)?,
            None => Tls::system()?,
        };
        tls = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => tls.identity(certificate, key)?,
            (None, None) => tls,
            _ => {
                let wanted = "TLS: name both a client certificate and its key, or neither";
                return Err(Error::invalid(wanted));
            }
        };
        if let Some(name) = &self.server_name {
            tls = tls.server_name(name);
        }
        Ok(builder.tls(tls))
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_self, reason = "it is used where it is compiled in")]
    fn add_to(&self, _builder: ClientBuilder) -> Result<ClientBuilder> {
        let why = "TLS was asked for, but zklock was compiled without its feature `tls`";
        Err(Error::invalid(why))
    }
}

impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthConfig")
            .field("scheme", &self.scheme)
            .field("credentials", &"(secret)")
            .finish()
    }
}

impl fmt::Debug for SaslConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaslConfig")
            .field("user", &self.user)
            .field("password", &"(secret)")
            .finish()
    }
}

/// Secrets out of a file of settings. An error of serde shows the value that it stumbled over, as in a
/// password that is a number, so these are told by the form that was expected.
#[cfg(feature = "serde")]
mod secrets {
    use serde::Deserialize;
    use serde::de::{Deserializer, Error};

    use super::{AuthConfig, SaslConfig};

    pub(super) fn list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<AuthConfig>, D::Error> {
        let expected = r#"auth: expected a list of {"scheme": "...", "credentials": "..."}"#;
        Vec::deserialize(from).map_err(|_| D::Error::custom(expected))
    }

    impl<'de> Deserialize<'de> for AuthConfig {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct Fields {
                scheme: String,
                credentials: String,
            }
            let expected = r#"expected {"scheme": "...", "credentials": "..."}"#;
            let fields = Fields::deserialize(from).map_err(|_| D::Error::custom(expected))?;
            Ok(Self {
                scheme: fields.scheme,
                credentials: fields.credentials,
            })
        }
    }

    impl<'de> Deserialize<'de> for SaslConfig {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct Fields {
                user: String,
                password: String,
            }
            let expected = r#"sasl: expected {"user": "...", "password": "..."}"#;
            let fields = Fields::deserialize(from).map_err(|_| D::Error::custom(expected))?;
            Ok(Self {
                user: fields.user,
                password: fields.password,
            })
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<ClientConfig> {
        over(ClientConfig::default(), variables)
    }

    fn over(config: ClientConfig, variables: &[(&str, &str)]) -> Result<ClientConfig> {
        config.with_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            Ok(found.map(|(_, value)| (*value).to_owned()))
        })
    }

    /// The errors of serde showed the value that was of the wrong form.
    #[cfg(feature = "serde")]
    #[test]
    fn what_is_wrong_in_settings_is_told_without_secrets() {
        let good = r#"{
            "auth": [{"scheme": "digest", "credentials": "a:b"}],
            "sasl": {"user": "a", "password": "b"}
        }"#;
        let good: ClientConfig = serde_json::from_str(good).expect("good");
        assert_eq!(good.auth[0].credentials, "a:b");
        assert_eq!(good.sasl.expect("set").password, "b");
        for wrong in [
            r#"{"auth": ["digest:5252"]}"#,
            r#"{"auth": "digest:5252"}"#,
            r#"{"auth": [{"scheme": "digest", "credentials": 5252}]}"#,
            r#"{"auth": [{"scheme": "digest", "5252": ""}]}"#,
            r#"{"sasl": {"user": "a", "password": 5252}}"#,
            r#"{"sasl": "a:5252"}"#,
        ] {
            let error = serde_json::from_str::<ClientConfig>(wrong).expect_err(wrong);
            let text = error.to_string();
            assert!(!text.contains("5252"), "{text}");
            assert!(
                text.contains("expected") && text.contains("line 1"),
                "{text}"
            );
        }
    }

    #[test]
    fn variables_win_over_settings_and_leave_the_rest() {
        let settings = ClientConfig {
            servers: "a".into(),
            session_timeout_ms: Some(1),
            sasl: Some(SaslConfig {
                user: "alice".into(),
                password: "old".into(),
            }),
            tls: Some(TlsConfig {
                ca: Some("/ca".into()),
                ..TlsConfig::default()
            }),
            creator_all: true,
            ..ClientConfig::default()
        };
        assert_eq!(over(settings.clone(), &[]).expect("good"), settings);
        let variables = [
            ("ZK_CONNECT", "b"),
            ("ZK_SASL_PASSWORD", "new"),
            ("ZK_TLS_SERVER_NAME", "zk"),
            ("ZK_ACL", "open"),
        ];
        let config = over(settings, &variables).expect("good");
        assert_eq!(
            (&*config.servers, config.session_timeout_ms),
            ("b", Some(1))
        );
        let sasl = config.sasl.expect("it stays");
        assert_eq!((&*sasl.user, &*sasl.password), ("alice", "new"));
        let tls = config.tls.expect("it stays");
        assert_eq!(tls.ca, Some("/ca".into()));
        assert_eq!(tls.server_name.as_deref(), Some("zk"));
        assert!(!config.creator_all);
    }

    #[test]
    fn secrets_come_from_files_and_a_file_that_is_missing_is_an_error() {
        let folder = tempfile::tempdir().expect("a place for files");
        let file = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).expect("it can be written");
            file.to_str().expect("text").to_owned()
        };
        let auth = file("auth", "# ours\n\ndigest:a:b:c\nip:\n");
        let password = file("password", " with spaces \n");
        let config = from(&[
            ("ZK_AUTH_FILE", &auth),
            ("ZK_SASL_USER", "alice"),
            ("ZK_SASL_PASSWORD_FILE", &password),
        ]);
        let config = config.expect("good");
        let auth: Vec<_> = config
            .auth
            .iter()
            .map(|auth| (&*auth.scheme, &*auth.credentials))
            .collect();
        assert_eq!(auth, [("digest", "a:b:c"), ("ip", "")]);
        assert_eq!(config.sasl.expect("set").password, " with spaces ");
        let bad = file("bad", "sesame\n");
        let empty = file("empty", "\n");
        for (variables, part) in [
            (vec![("ZK_AUTH_FILE", "/no/such/file")], "/no/such/file"),
            (vec![("ZK_AUTH_FILE", &bad)], "digest:user:password"),
            (vec![("ZK_AUTH_FILE", &empty)], "no credentials"),
            (
                vec![("ZK_AUTH_FILE", &bad), ("ZK_AUTH", "sesame:x")],
                "not both",
            ),
            (vec![("ZK_SASL_PASSWORD_FILE", &password)], "ZK_SASL_USER"),
        ] {
            let error = from(&variables).expect_err(part);
            assert!(error.is_invalid(), "{error}");
            let text = error.to_string();
            assert!(text.contains(part) && !text.contains("sesame"), "{text}");
        }
    }

    #[test]
    fn every_variable_is_heard() {
        let config = from(&[
            ("ZK_CONNECT", "a:1,b:2/c"),
            ("ZK_SESSION_TIMEOUT_MS", "3000"),
            ("ZK_CONNECT_TIMEOUT_MS", "4000"),
            ("ZK_TICK_TIME_MS", "500"),
            ("ZK_AUTH", "digest:user:pass:word"),
            ("ZK_SASL_USER", "alice"),
            ("ZK_SASL_PASSWORD", "sesame"),
            ("ZK_ACL", "creator-all"),
            ("ZK_TLS_CA", "/ca"),
            ("ZK_TLS_CERTIFICATE", "/me"),
            ("ZK_TLS_KEY", "/key"),
            ("ZK_TLS_SERVER_NAME", "zk"),
        ]);
        let config = config.expect("good");
        let expected = ClientConfig {
            servers: "a:1,b:2/c".into(),
            session_timeout_ms: Some(3000),
            connect_timeout_ms: Some(4000),
            tick_time_ms: Some(500),
            auth: vec![AuthConfig {
                scheme: "digest".into(),
                credentials: "user:pass:word".into(),
            }],
            sasl: Some(SaslConfig {
                user: "alice".into(),
                password: "sesame".into(),
            }),
            tls: Some(TlsConfig {
                ca: Some("/ca".into()),
                certificate: Some("/me".into()),
                key: Some("/key".into()),
                server_name: Some("zk".into()),
            }),
            creator_all: true,
            create_chroot: false,
        };
        assert_eq!(config, expected);
        let shown = format!("{config:?}");
        assert!(
            !shown.contains("sesame") && !shown.contains("word\""),
            "{shown}"
        );
    }

    #[test]
    fn tls_is_asked_for_by_a_file_or_in_so_many_words() {
        let servers = ("ZK_CONNECT", "a");
        assert_eq!(from(&[servers]).expect("good").tls, None);
        assert_eq!(from(&[servers, ("ZK_TLS_CA", "")]).expect("good").tls, None);
        let system = from(&[servers, ("ZK_TLS", "yes")]).expect("good");
        assert_eq!(system.tls, Some(TlsConfig::default()));
        let off = from(&[servers, ("ZK_TLS", "no"), ("ZK_TLS_CA", "/ca")]);
        assert_eq!(off.expect("good").tls, None);
    }

    #[test]
    fn what_makes_no_sense_is_told_without_secrets() {
        for (variables, part) in [
            (
                vec![("ZK_SESSION_TIMEOUT_MS", "10s")],
                "ZK_SESSION_TIMEOUT_MS",
            ),
            (
                vec![("ZK_CONNECT_TIMEOUT_MS", "-1")],
                "ZK_CONNECT_TIMEOUT_MS",
            ),
            (vec![("ZK_TICK_TIME_MS", "2s")], "ZK_TICK_TIME_MS"),
            (vec![("ZK_AUTH", "sesame")], "ZK_AUTH"),
            (vec![("ZK_SASL_PASSWORD", "sesame")], "ZK_SASL_USER"),
            (vec![("ZK_ACL", "sesame")], "ZK_ACL"),
            (vec![("ZK_TLS", "sesame")], "ZK_TLS"),
        ] {
            let error = from(&variables).expect_err(part);
            assert!(error.is_invalid(), "{error}");
            let text = error.to_string();
            assert!(text.contains(part) && !text.contains("sesame"), "{text}");
        }
    }

    #[cfg(not(all(feature = "tls", feature = "sasl")))]
    #[test]
    fn what_is_not_compiled_in_is_refused() {
        let config = ClientConfig {
            servers: "a".into(),
            sasl: Some(SaslConfig::default()),
            tls: Some(TlsConfig::default()),
            ..ClientConfig::default()
        };
        let error = config
            .builder()
            .map(drop)
            .expect_err("one of them is missing");
        assert!(
            error.is_invalid() && error.to_string().contains("feature"),
            "{error}"
        );
    }
}
