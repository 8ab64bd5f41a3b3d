//! [`Tls`]: whom to trust, and who we are.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Error as TlsError, RootCertStore};

use super::any_name::AnyName;
use super::ec_key;
use crate::error::{Error, Result};

/// Connections over TLS; give it to [`ClientBuilder::tls`](crate::ClientBuilder::tls).
///
/// The client then speaks TLS 1.3 or 1.2 with every server of the connect string, and never plain
/// TCP: give the servers' `secureClientPort`. A server's certificate must come from a CA that is
/// trusted here, and name the host (or the IP address) as the connect string has it, as a subject
/// alternative name. A common name alone does not count.
///
/// Every file is read now, so that a mistake shows at once, and again at every new connection. To
/// change certificates, replace the files; the next connection uses the new ones, and the open one
/// goes on. While a file cannot be read no connection is made, and the failure says which file.
///
/// A session is resumed on another connection as without TLS, after a full handshake. The handshake
/// counts towards the time that a server has to answer.
///
/// # Examples
/// The servers' own CA, and a certificate for this program:
///
/// ```no_run
/// use zklock::{Acl, Client, Tls};
///
/// # fn main() -> zklock::Result<()> {
/// let tls = Tls::pem("/etc/zk/ca.pem")?.identity("/etc/zk/batch.pem", "/etc/zk/batch.key")?;
/// let client = Client::builder("zk1:2281,zk2:2281,zk3:2281")
///     .tls(tls)
///     .acl(Acl::creator_all())
///     .connect()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tls {
    trust: Trust,
    identity: Option<IdentityFiles>,
    server_name: Option<String>,
    any_name: bool,
}

#[derive(Clone)]
enum Trust {
    System,
    Pem(PathBuf),
}

#[derive(Clone)]
struct IdentityFiles {
    certificate: PathBuf,
    key: PathBuf,
    /// That others can read the key was said.
    warned: Arc<AtomicBool>,
}

impl Tls {
    /// Trusts the CAs whose certificates are in a PEM file, and no others.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the file cannot be read or has no certificate in it.
    pub fn pem(ca_file: impl Into<PathBuf>) -> Result<Self> {
        Self::trusting(Trust::Pem(ca_file.into()))
    }

    /// Trusts the CAs that the system trusts.
    ///
    /// On Unix `SSL_CERT_FILE` and `SSL_CERT_DIR` say where their certificates are, if they are
    /// set.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if no CA is found.
    pub fn system() -> Result<Self> {
        Self::trusting(Trust::System)
    }

    fn trusting(trust: Trust) -> Result<Self> {
        trust.read().map_err(Error::invalid)?;
        Ok(Self {
            trust,
            identity: None,
            server_name: None,
            any_name: false,
        })
    }

    /// Shows a client certificate to the servers. `certificate_file` contains it, followed by those
    /// between it and the CA; `key_file` contains its private key, unencrypted: RSA, ECDSA on P-256
    /// or P-384, or Ed25519. Both files are PEM.
    ///
    /// Out of a Java keystore in PKCS#12 (`keytool -importkeystore -deststoretype PKCS12` converts
    /// others) OpenSSL takes them so:
    ///
    /// ```sh
    /// openssl pkcs12 -in batch.p12 -nokeys -out batch.pem
    /// openssl pkcs12 -in batch.p12 -nocerts -nodes -out batch.key
    /// ```
    ///
    /// With servers that ask for it (`ssl.clientAuth`), its subject is this client's identity in
    /// the scheme `x509`; see [`Acl::creator_all`](crate::Acl::creator_all) and
    /// [`Acl::entry`](crate::Acl::entry). If every user of the machine can read or change the key
    /// file, that is logged as a warning, once.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if a file cannot be read or contains no certificate or
    /// key, or if the key belongs to another certificate.
    pub fn identity(
        mut self,
        certificate_file: impl Into<PathBuf>,
        key_file: impl Into<PathBuf>,
    ) -> Result<Self> {
        self.identity = Some(IdentityFiles {
            certificate: certificate_file.into(),
            key: key_file.into(),
            warned: Arc::default(),
        });
        self.config().map_err(Error::invalid)?;
        Ok(self)
    }

    /// The name that every server's certificate must have, in place of the connect string's host;
    /// for servers that are reached by addresses, or that share a certificate.
    /// [`ClientBuilder::connect`](crate::ClientBuilder::connect) refuses what cannot be a name.
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// use zklock::{Client, Tls};
    ///
    /// // A connect string of addresses, and one certificate for all servers.
    /// let tls = Tls::system()?.server_name("zookeeper.example.com");
    /// let client = Client::builder("10.0.0.1:2281,10.0.0.2:2281").tls(tls).connect()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// **Dangerous**: accepts a certificate of the CA for any name.
    ///
    /// Whoever has any certificate of that CA, such as another client, can then pose as a server,
    /// read everything and hand out locks. To connect under another name, use
    /// [`server_name`](Self::server_name).
    #[must_use]
    pub fn dangerously_skip_host_name_check(mut self) -> Self {
        self.any_name = true;
        self
    }

    /// Whether the settings are possible.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        match &self.server_name {
            Some(name) => server_name(name).map(drop),
            None => Ok(()),
        }
    }

    /// Whom we trust, for messages.
    pub(super) fn trust(&self) -> String {
        self.trust.to_string()
    }

    /// Our own certificate, for messages.
    pub(super) fn certificate_file(&self) -> Option<String> {
        let identity = self.identity.as_ref()?;
        Some(identity.certificate.display().to_string())
    }

    /// What is to be logged about the files, once. The files may have been replaced since.
    pub(in crate::link) fn warning(&self) -> Option<String> {
        self.identity.as_ref()?.warning()
    }

    /// A connection to `host`, with the files as they are now.
    pub(super) fn connection(&self, host: &str) -> std::result::Result<ClientConnection, String> {
        let name = server_name(self.server_name.as_deref().unwrap_or(host))?;
        let config = self.config()?;
        ClientConnection::new(Arc::new(config), name).map_err(|error| format!("TLS: {error}"))
    }

    fn config(&self) -> std::result::Result<ClientConfig, String> {
        let provider = Arc::new(ring::default_provider());
        let roots = self.trust.read()?;
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS: {error}"))?;
        let builder = if self.any_name {
            let verifier: Arc<dyn ServerCertVerifier> = Arc::new(AnyName { roots, provider });
            builder
                .dangerous()
                .with_custom_certificate_verifier(verifier)
        } else {
            builder.with_root_certificates(roots)
        };
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let (chain, key) = files.read()?;
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(|error| files.refused(&error))?
            }
        };
        // The settings of one connection are forgotten with it.
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

impl Trust {
    fn read(&self) -> std::result::Result<RootCertStore, String> {
        let certificates = match self {
            Self::Pem(file) => certificates_in(file)?,
            Self::System => {
                let found = rustls_native_certs::load_native_certs();
                if found.certs.is_empty() {
                    let why = found.errors.first().map(ToString::to_string);
                    let why = why.unwrap_or_else(|| "there is none".to_owned());
                    return Err(format!(
                        "no certificate of a CA that the system trusts: {why}"
                    ));
                }
                found.certs
            }
        };
        let mut roots = RootCertStore::empty();
        let (_, unusable) = roots.add_parsable_certificates(certificates);
        if roots.is_empty() {
            return Err(format!(
                "{self}: none of {unusable} certificates can be used"
            ));
        }
        Ok(roots)
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("the system"),
            Self::Pem(file) => write!(f, "{}", file.display()),
        }
    }
}

impl IdentityFiles {
    fn read(
        &self,
    ) -> std::result::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
        let chain = certificates_in(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| unreadable(&self.key, &error, "private key in the clear"))?;
        let key = ec_key::completed(key, &chain[0]);
        Ok((chain, key))
    }

    fn warning(&self) -> Option<String> {
        let warn = is_open_to_all(&self.key) && !self.warned.swap(true, Ordering::Relaxed);
        warn.then(|| {
            let key = self.key.display();
            format!("{key}: every user of this machine can read or change this private key")
        })
    }

    fn refused(&self, error: &TlsError) -> String {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        match error {
            TlsError::InconsistentKeys(_) => {
                format!("{key} is not the private key of the certificate in {certificate}")
            }
            TlsError::General(_) => format!(
                "{key} is not the private key of the certificate in {certificate}, or of a kind that \
                 is not supported: RSA, ECDSA on P-256 or P-384, and Ed25519 are"
            ),
            other => format!("the certificate in {certificate} or its key in {key}: {other}"),
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.identity.as_ref().map(|files| &files.key);
        f.debug_struct("Tls")
            .field("trust", &self.trust())
            .field("certificate_file", &self.certificate_file())
            .field("key_file", &key)
            .field("server_name", &self.server_name)
            .field("any_name", &self.any_name)
            .finish()
    }
}

fn server_name(name: &str) -> std::result::Result<ServerName<'static>, String> {
    // The zone of an address says which way to it, not whose it is.
    let (address, _zone) = name.split_once('%').unwrap_or((name, ""));
    ServerName::try_from(address.to_owned()).map_err(|_| {
        format!("{name:?} cannot be the name in a server's certificate; see Tls::server_name")
    })
}

fn certificates_in(file: &Path) -> std::result::Result<Vec<CertificateDer<'static>>, String> {
    let found: std::result::Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    match found {
        Ok(found) if found.is_empty() => {
            Err(unreadable(file, &pem::Error::NoItemsFound, "certificate"))
        }
        Ok(found) => Ok(found),
        Err(error) => Err(unreadable(file, &error, "certificate")),
    }
}

/// Never shows the content of the file: it may be a key.
fn unreadable(file: &Path, error: &pem::Error, wanted: &str) -> String {
    let file = file.display();
    match error {
        pem::Error::Io(error) => format!("{file}: {error}"),
        pem::Error::NoItemsFound => format!("{file}: there is no {wanted} in it, in PEM"),
        _ => format!("{file}: it is not well-formed PEM"),
    }
}

/// Members of its group may be meant to.
#[cfg(unix)]
fn is_open_to_all(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    const BY_ALL: u32 = 0o006;
    std::fs::metadata(file).is_ok_and(|file| file.permissions().mode() & BY_ALL != 0)
}

#[cfg(not(unix))]
fn is_open_to_all(_file: &Path) -> bool {
    false
}
