//! SASL DIGEST-MD5 (RFC 2831), as ZooKeeper speaks it: an account of the server's `Server` section.
//!
//! Quality of protection is `auth` alone: nothing that follows is sealed by it.

use std::fmt::{self, Write};
use std::io;

use md5::{Digest, Md5};

use super::dial::Dialled;

/// What ZooKeeper calls its service, and every of its servers.
const SERVICE: &str = "zookeeper/zk-sasl-md5";
/// Of the counter of uses of a challenge: each is used once.
const FIRST: &str = "00000001";

/// An account at the servers.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .field("password", &"(secret)")
            .finish()
    }
}

impl Login {
    /// Logs in. `Ok(false)`: the server refused.
    pub(super) fn present(&self, server: &mut Dialled<'_>) -> io::Result<bool> {
        let Some(challenge) = server.exchange_sasl(1, &[])? else {
            return Ok(false);
        };
        let challenge = std::str::from_utf8(&challenge).unwrap_or_default();
        let Some(challenge) = Challenge::parse(challenge) else {
            return Err(failed(
                "it gave no challenge of DIGEST-MD5; has it SASL set up?",
            ));
        };
        let cnonce = uuid::Uuid::new_v4().simple().to_string();
        let answer = Answer::new(self, &challenge, &cnonce);
        let Some(proof) = server.exchange_sasl(2, answer.text(self, &challenge).as_bytes())? else {
            return Ok(false);
        };
        // Only who knows the password can say this.
        if proof != format!("rspauth={}", answer.digest("")).as_bytes() {
            return Err(failed("it could not prove that it knows the password"));
        }
        Ok(true)
    }
}

/// What the server has asked.
#[derive(Debug, Default, PartialEq, Eq)]
struct Challenge {
    realm: String,
    nonce: String,
}

impl Challenge {
    /// Returns nothing for what this client could not answer.
    fn parse(text: &str) -> Option<Self> {
        let found = directives(text)?;
        // Which of two would count is a guess, and the RFC has us give up then.
        let only = |wanted: &str| {
            let mut values = found.iter().filter(|(name, _)| name == wanted);
            let value = values.next().map(|(_, value)| value.as_str());
            values.next().is_none().then_some(value)
        };
        let (nonce, algorithm, qop) = (only("nonce")??, only("algorithm")??, only("qop")?);
        let mut offered = qop.unwrap_or("auth").split(',');
        let possible = algorithm == "md5-sess" && offered.any(|one| one.trim() == "auth");
        // Of realms there may be several: the first.
        let realm = found.iter().find(|(name, _)| name == "realm");
        (possible && !nonce.is_empty()).then(|| Self {
            realm: realm.map_or(String::new(), |(_, value)| value.clone()),
            nonce: nonce.to_owned(),
        })
    }
}

/// `name=value,name="quoted value"`.
fn directives(text: &str) -> Option<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=')?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let mut end = after.len();
        if after.starts_with('"') {
            chars.next();
            loop {
                match chars.next()?.1 {
                    '"' => break,
                    '\\' => value.push(chars.next()?.1),
                    other => value.push(other),
                }
            }
            end = chars.next().map_or(after.len(), |(at, _)| at);
        } else if let Some(comma) = after.find(',') {
            end = comma;
            value.push_str(&after[..comma]);
        } else {
            value.push_str(after);
        }
        found.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        rest = after[end..].trim_start_matches([',', ' ']);
    }
    Some(found)
}

/// What proves the password, both ways.
struct Answer {
    /// The digest of the account and of both sides' random text.
    session: String,
    nonce: String,
    cnonce: String,
}

impl Answer {
    fn new(login: &Login, challenge: &Challenge, cnonce: &str) -> Self {
        let account = [&login.user, &challenge.realm, &login.password];
        let account = account.map(|part| narrowed(part)).join(&b':');
        let mut md5 = Md5::new();
        md5.update(Md5::digest(account));
        md5.update(format!(":{}:{cnonce}", challenge.nonce));
        Self {
            session: hex(&md5.finalize()),
            nonce: challenge.nonce.clone(),
            cnonce: cnonce.to_owned(),
        }
    }

    /// `AUTHENTICATE` by the client, nothing by the server.
    fn digest(&self, method: &str) -> String {
        let what = hex(&Md5::digest(format!("{method}:{SERVICE}")));
        let Self {
            session,
            nonce,
            cnonce,
        } = self;
        hex(&Md5::digest(format!(
            "{session}:{nonce}:{FIRST}:{cnonce}:auth:{what}"
        )))
    }

    fn text(&self, login: &Login, challenge: &Challenge) -> String {
        format!(
            "charset=utf-8,username={},realm={},nonce={},nc={FIRST},cnonce={},digest-uri={},\
             maxbuf=65536,response={},qop=auth",
            quoted(&login.user),
            quoted(&challenge.realm),
            quoted(&self.nonce),
            quoted(&self.cnonce),
            quoted(SERVICE),
            self.digest("AUTHENTICATE"),
        )
    }
}

/// The RFC has text in ISO 8859-1 where that is possible, and in UTF-8 where it is not.
fn narrowed(text: &str) -> Vec<u8> {
    let narrow: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(c).ok()).collect();
    narrow.unwrap_or_else(|| text.as_bytes().to_vec())
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn failed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("SASL: {why}"))
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let text = r#"realm="a \"b\", c", nonce="n+/=",charset=utf-8,algorithm=md5-sess,qop="auth-int,auth""#;
        let expected = Challenge {
            realm: "a \"b\", c".to_owned(),
            nonce: "n+/=".to_owned(),
        };
        assert_eq!(Challenge::parse(text), Some(expected));
    }

    #[test]
    fn what_cannot_be_answered_is_no_challenge() {
        for text in [
            "",
            "nonce",
            "nonce=\"n",
            "nonce=\"n\\",
            "nonce=n",
            "nonce=n,algorithm=md5",
            "algorithm=md5-sess",
            "nonce=n,algorithm=md5-sess,qop=\"auth-int\"",
            // What may be there only once, twice.
            "nonce=n,nonce=n,algorithm=md5-sess",
            "nonce=n,algorithm=md5-sess,nonce=m",
            "nonce=\"\",nonce=n,algorithm=md5-sess",
            "nonce=n,algorithm=md5-sess,algorithm=md5-sess",
            "nonce=n,algorithm=md5-sess,qop=auth,qop=auth",
        ] {
            let parsed = Challenge::parse(text);
            assert!(parsed.is_none(), "{text}: {parsed:?}");
        }
    }

    /// The RFC's own example is of IMAP; with its service in place of ours this is its answer.
    #[test]
    fn answers_are_those_of_an_independent_calculation() {
        let login = Login {
            user: "chris".into(),
            password: "secret".into(),
        };
        let challenge = Challenge {
            realm: "elwood.innosoft.com".into(),
            nonce: "OA6MG9tEQGm2hh".into(),
        };
        let answer = Answer::new(&login, &challenge, "OA6MHXh6VqTrRk");
        assert_eq!(
            answer.digest("AUTHENTICATE"),
            "3d53f3e841d45c8a4dcf0f37c4725582"
        );
        assert_eq!(answer.digest(""), "8c55a82deadfa98cf2a60488be40c74d");
    }

    #[test]
    fn the_password_is_never_shown() {
        let login = Login {
            user: "chris".into(),
            password: "open sesame".into(),
        };
        assert!(!format!("{login:?}").contains("sesame"));
    }
}
