//! What went wrong, in words that say where to look.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use super::settings::Tls;

/// What the settings have to do with a failure.
pub(super) struct Blame {
    /// Where the certificates of those come from whom we trust.
    trust: String,
    /// The file of our own certificate.
    certificate: Option<String>,
}

impl Blame {
    pub(super) fn new(tls: &Tls) -> Self {
        Self {
            trust: tls.trust(),
            certificate: tls.certificate_file(),
        }
    }

    /// Why a server may hang up without a word.
    pub(super) fn hung_up(&self, shaking_hands: bool) -> &'static str {
        match (shaking_hands, &self.certificate) {
            (true, _) => {
                "it closed the connection in the TLS handshake, as a port without TLS does: give its \
                 secureClientPort, or connect without TLS"
            }
            (false, None) => "it closed the connection; does it want a client certificate?",
            (false, Some(_)) => {
                "it closed the connection; does it trust the client certificate, and is it part of \
                 a working quorum?"
            }
        }
    }

    pub(super) fn explain(&self, error: &Error, shaking_hands: bool) -> io::Error {
        let why = match error {
            Error::InvalidCertificate(why) => self.certificate_refused(why),
            Error::AlertReceived(alert) => self.alerted(*alert),
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType
                | InvalidMessage::UnknownProtocolVersion
                | InvalidMessage::MessageTooLarge,
            ) if shaking_hands => {
                "it does not speak TLS on this port: give its secureClientPort, or connect without TLS"
                    .to_owned()
            }
            Error::PeerIncompatible(why) => {
                let why = spelled_out(&format!("{why:?}"));
                format!("no version or cipher of TLS in common with it ({why})")
            }
            other => format!("TLS failed: {other}"),
        };
        io::Error::new(io::ErrorKind::InvalidData, why)
    }

    fn certificate_refused(&self, why: &CertificateError) -> String {
        const DAY_S: u64 = 24 * 60 * 60;
        let trust = &self.trust;
        match why {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
                "its certificate is not signed by any CA of {trust}; is that the right CA, and \
                 does the server send its whole chain?"
            ),
            CertificateError::ExpiredContext { time, not_after } => {
                let days = time.as_secs().saturating_sub(not_after.as_secs()) / DAY_S;
                format!(
                    "its certificate, or its CA's, has expired, {days} days ago; renew it, or set \
                     this machine's clock"
                )
            }
            CertificateError::NotValidYetContext { time, not_before } => {
                let days = not_before.as_secs().saturating_sub(time.as_secs()) / DAY_S;
                format!(
                    "its certificate, or its CA's, is not valid yet, for {days} days; look at this \
                     machine's clock"
                )
            }
            CertificateError::NotValidForNameContext {
                expected,
                presented,
            } => {
                let expected = expected.to_str();
                let names = match &presented[..] {
                    [] => "no name at all".to_owned(),
                    names => names
                        .iter()
                        .map(|name| name_of(name))
                        .collect::<Vec<_>>()
                        .join(", "),
                };
                format!(
                    "its certificate is not for {expected}; it names {names}: connect by such a \
                     name, or set Tls::server_name"
                )
            }
            // What `openssl req -x509` makes, if nobody tells it otherwise.
            CertificateError::Other(why) if why.to_string() == "CaUsedAsEndEntity" => {
                "its certificate is that of a CA (CA:TRUE), which may sign others and not serve; \
                 have it sign one for the server"
                    .to_owned()
            }
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                "its certificate is not made for servers; its extended key usage needs serverAuth"
                    .to_owned()
            }
            other => {
                let why = spelled_out(&other.to_string());
                format!("its certificate cannot be accepted: {why}")
            }
        }
    }

    /// The server says that it is our fault. In TLS 1.3 this may come when all seemed well: the
    /// client ends its handshake before the server has looked at its certificate.
    fn alerted(&self, alert: AlertDescription) -> String {
        use AlertDescription as A;
        let about_certificate = matches!(
            alert,
            A::NoCertificate
                | A::BadCertificate
                | A::UnsupportedCertificate
                | A::CertificateRevoked
                | A::CertificateExpired
                | A::CertificateUnknown
                | A::UnknownCA
                | A::AccessDenied
                | A::DecryptError
                | A::CertificateRequired
        );
        let said = spelled_out(&format!("{alert:?}"));
        match (&self.certificate, about_certificate) {
            (Some(file), true) => format!(
                "it refused the client certificate of {file} ({said}); does its trust store hold \
                 the CA, and is the certificate still valid?"
            ),
            (None, true) => format!(
                "it wants a client certificate ({said}), and was given none; see Tls::identity"
            ),
            (None, false) if alert == A::HandshakeFailure => format!(
                "it refused the TLS handshake ({said}): it wants a client certificate, or has no \
                 version or cipher of TLS in common with us"
            ),
            (_, false) => format!("it ended TLS ({said})"),
        }
    }
}

/// A name of a certificate, which the library beneath gives as its Rust type prints:
/// `DnsName("zk1.example")`, `IpAddress(10.0.0.1)`.
fn name_of(presented: &str) -> String {
    let inside = presented
        .split_once('(')
        .and_then(|(kind, inside)| Some((kind, inside.strip_suffix(')')?)));
    match inside {
        Some(("DnsName" | "IpAddress" | "UniformResourceIdentifier", inside)) => {
            inside.trim_matches('"').to_owned()
        }
        _ if presented == "DirectoryName" => "an entry of a directory".to_owned(),
        _ => "a name of a kind that servers do not have".to_owned(),
    }
}

/// `CertificateRequired` is "certificate required": for what has a Rust name and no text of its own.
fn spelled_out(name: &str) -> String {
    let mut words = String::new();
    let mut letters = name.chars().peekable();
    let mut before = ' ';
    while let Some(letter) = letters.next() {
        if letter.is_ascii_uppercase() && !before.is_ascii_uppercase() {
            if before.is_alphanumeric() {
                words.push(' ');
            }
            let is_word = letters.peek().is_some_and(char::is_ascii_lowercase);
            words.push(if is_word {
                letter.to_ascii_lowercase()
            } else {
                letter
            });
        } else {
            words.push(letter);
        }
        before = letter;
    }
    words
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn names_of_rust_are_not_shown() {
        for (name, words) in [
            ("CertificateRequired", "certificate required"),
            ("UnknownCA", "unknown CA"),
            ("Tls12NotOffered", "tls12 not offered"),
            ("it has words: 3 of them", "it has words: 3 of them"),
            ("", ""),
        ] {
            assert_eq!(spelled_out(name), words);
        }
        for (presented, name) in [
            ("DnsName(\"zk1.example\")", "zk1.example"),
            ("IpAddress(10.0.0.1)", "10.0.0.1"),
            (
                "UniformResourceIdentifier(\"spiffe://zk/1\")",
                "spiffe://zk/1",
            ),
            ("DirectoryName", "an entry of a directory"),
            (
                "Unsupported(0xa0)",
                "a name of a kind that servers do not have",
            ),
        ] {
            assert_eq!(name_of(presented), name);
        }
    }
}
