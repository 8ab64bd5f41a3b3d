//! Who may do what: access lists and credentials.

use std::net::{IpAddr, Ipv4Addr};

use zklock_protocol::{Acl, ErrorCode};

use super::{Line, sha1};

/// As whom the server knows a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) scheme: String,
    pub(crate) id: String,
}

impl Identity {
    /// What a connection is from its start.
    pub(crate) fn address(peer: Ipv4Addr) -> Self {
        Self {
            scheme: "ip".to_owned(),
            id: peer.to_string(),
        }
    }

    /// What credentials make of a connection.
    pub(crate) fn prove(scheme: &str, credentials: &[u8], peer: Ipv4Addr) -> Option<Self> {
        match scheme {
            "ip" => Some(Self::address(peer)),
            "digest" => {
                let text = String::from_utf8_lossy(credentials);
                let user = text.split(':').next().unwrap_or_default();
                let digest = sha1::base64(&sha1::digest(text.as_bytes()));
                Some(Self {
                    scheme: scheme.to_owned(),
                    id: format!("{user}:{digest}"),
                })
            }
            _ => None,
        }
    }

    /// Whom people call it.
    pub(crate) fn name(&self) -> &str {
        match &*self.scheme {
            "digest" => self.id.split(':').next().unwrap_or_default(),
            _ => &self.id,
        }
    }

    fn matches(&self, acl: &Acl) -> bool {
        self.scheme == acl.scheme
            && match &*self.scheme {
                "digest" => self.id == acl.id,
                "ip" => Network::parse(&acl.id)
                    .zip(self.id.parse().ok())
                    .is_some_and(|(network, address)| network.contains(address)),
                _ => false,
            }
    }
}

/// Whether the list permits one of `permissions` to somebody with these identities.
pub(crate) fn check(
    acl: &[Acl],
    permissions: i32,
    identities: &[Identity],
) -> Result<(), ErrorCode> {
    let permitted = |line: &Acl| {
        line.permissions & permissions != 0
            && (is_anyone(line) || identities.iter().any(|identity| identity.matches(line)))
    };
    if acl.is_empty() || acl.iter().any(permitted) {
        Ok(())
    } else {
        Err(ErrorCode::NO_AUTH)
    }
}

/// The list as it is stored: without repetitions, and with the identities that `auth` stands for.
pub(crate) fn resolve(
    acl: &[Acl],
    identities: &[Identity],
    line: Line,
) -> Result<Vec<Acl>, ErrorCode> {
    let mut resolved: Vec<Acl> = Vec::new();
    for (at, entry) in acl.iter().enumerate() {
        if acl[..at].contains(entry) {
            continue;
        }
        match &*entry.scheme {
            "world" if entry.id == "anyone" => resolved.push(entry.clone()),
            "auth" => {
                // An address is known without proof, and so is no proof.
                let proven = identities
                    .iter()
                    .filter(|identity| identity.scheme == "digest");
                let before = resolved.len();
                resolved.extend(proven.map(|identity| Acl {
                    permissions: entry.permissions,
                    scheme: identity.scheme.clone(),
                    id: identity.id.clone(),
                }));
                if resolved.len() == before {
                    return Err(ErrorCode::INVALID_ACL);
                }
            }
            "digest" if is_user_and_digest(&entry.id) => resolved.push(entry.clone()),
            "ip" if is_network(&entry.id, line) => resolved.push(entry.clone()),
            _ => return Err(ErrorCode::INVALID_ACL),
        }
    }
    if resolved.is_empty() {
        return Err(ErrorCode::INVALID_ACL);
    }
    Ok(resolved)
}

/// The list as those see it who may not change it.
pub(crate) fn without_digests(acl: &[Acl]) -> Vec<Acl> {
    let mut shown = acl.to_vec();
    for line in shown.iter_mut().filter(|line| line.scheme == "digest") {
        if let Some((user, _)) = line.id.split_once(':') {
            line.id = format!("{user}:x");
        }
    }
    shown
}

fn is_anyone(line: &Acl) -> bool {
    line.scheme == "world" && line.id == "anyone"
}

/// Two parts; empty ones at the end are not counted.
fn is_user_and_digest(id: &str) -> bool {
    id.trim_end_matches(':').split(':').count() == 2
}

/// Addresses of IPv6 are known from 3.9 on.
fn is_network(id: &str, line: Line) -> bool {
    Network::parse(id).is_some_and(|network| network.address.is_ipv4() || line == Line::V3_9)
}

/// Addresses that begin alike.
struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        (bits <= most).then_some(Self { address, bits })
    }

    fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differing = network.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= self.bits
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differing = network.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= self.bits
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(permissions: i32, scheme: &str, id: &str) -> Acl {
        Acl {
            permissions,
            scheme: scheme.to_owned(),
            id: id.to_owned(),
        }
    }

    fn known() -> Vec<Identity> {
        let peer = Ipv4Addr::LOCALHOST;
        let user = Identity::prove("digest", b"super:admin", peer).expect("known scheme");
        vec![Identity::address(peer), user]
    }

    #[test]
    fn each_scheme_has_its_own_match() {
        let digest = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=";
        let cases = [
            (line(31, "world", "anyone"), true),
            (line(1, "world", "anyone"), false),
            (line(31, "digest", digest), true),
            (line(31, "digest", "super:other"), false),
            (line(31, "ip", "127.0.0.1"), true),
            (line(31, "ip", "127.9.0.0/8"), true),
            (line(31, "ip", "10.0.0.0/8"), false),
            (line(31, "sasl", "super"), false),
        ];
        for (acl, permitted) in cases {
            let outcome = check(std::slice::from_ref(&acl), 2, &known());
            assert_eq!(outcome.is_ok(), permitted, "{acl:?}");
        }
        assert_eq!(check(&[], 31, &[]), Ok(()));
    }

    #[test]
    fn auth_stands_for_what_was_proven() {
        let resolved =
            resolve(&[line(3, "auth", "")], &known(), Line::V3_8).expect("somebody is known");
        assert_eq!(
            resolved,
            [line(3, "digest", "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=")]
        );
        let unknown = resolve(&[line(3, "auth", "")], &known()[..1], Line::V3_8);
        assert_eq!(unknown, Err(ErrorCode::INVALID_ACL));
    }

    #[test]
    fn refuses_what_no_server_takes() {
        for acl in [
            line(31, "world", "somebody"),
            line(31, "digest", "user"),
            line(31, "digest", "user:"),
            line(31, "digest", "a:b:c"),
            line(31, "ip", "localhost"),
            line(31, "ip", "1.2.3.4/33"),
            line(31, "sasl", "x"),
        ] {
            assert_eq!(
                resolve(std::slice::from_ref(&acl), &known(), Line::V3_8),
                Err(ErrorCode::INVALID_ACL),
                "{acl:?}"
            );
        }
        assert_eq!(
            resolve(&[], &known(), Line::V3_8),
            Err(ErrorCode::INVALID_ACL)
        );
        let twice = [Acl::open(), Acl::open()];
        assert_eq!(resolve(&twice, &[], Line::V3_8).map(|acl| acl.len()), Ok(1));
    }

    #[test]
    fn addresses_of_ipv6_are_taken_from_3_9_on() {
        for id in ["::1", "fe80::/10"] {
            let entry = [line(31, "ip", id)];
            let refused = resolve(&entry, &[], Line::V3_8);
            assert_eq!(refused, Err(ErrorCode::INVALID_ACL));
            assert_eq!(resolve(&entry, &[], Line::V3_9).as_deref(), Ok(&entry[..]));
            assert_eq!(check(&entry, 1, &known()), Err(ErrorCode::NO_AUTH));
        }
    }

    #[test]
    fn digests_are_hidden() {
        let shown = without_digests(&[line(1, "digest", "user:secret"), Acl::open()]);
        assert_eq!(shown, [line(1, "digest", "user:x"), Acl::open()]);
    }
}
