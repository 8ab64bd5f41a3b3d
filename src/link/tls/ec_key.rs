//! EC keys without their public half.
//!
//! An EC key may leave its public half out, in PKCS#8 as in SEC 1. Java's keystores do, and so does
//! what is taken out of them. ring wants both halves, to check one by the other, and refuses such a
//! key. But the certificate has the public half. Put together they are what ring takes; if they are
//! not of each other, it still refuses.

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ParsedCertificate;

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
/// Of an EC key: the curve, which the algorithm beside it names as well.
const PARAMETERS: u8 = 0xa0;
const PUBLIC_HALF: u8 = 0xa1;
/// The first byte of a point of which both coordinates follow.
const UNCOMPRESSED: u8 = 4;

/// `key`, with the public half of `certificate` if it is an EC key that has none.
pub(super) fn completed(
    key: PrivateKeyDer<'static>,
    certificate: &CertificateDer<'_>,
) -> PrivateKeyDer<'static> {
    match with_public_half(&key, certificate) {
        Some(whole) => PrivatePkcs8KeyDer::from(whole).into(),
        None => key,
    }
}

/// `None`: it is no EC key, has a public half, or the certificate has none that fits.
fn with_public_half(key: &PrivateKeyDer<'_>, certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let private = private_half(key)?;
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let spki = parsed.subject_public_key_info();
    let mut spki = Der(Der(&spki).value(SEQUENCE)?);
    let algorithm = spki.value(SEQUENCE)?;
    let (0, point) = spki.value(BIT_STRING)?.split_first()? else {
        return None;
    };
    let (&UNCOMPRESSED, coordinates) = point.split_first()? else {
        return None;
    };
    let private = padded(private, coordinates.len() / 2)?;
    let bits = element(BIT_STRING, &[&[0], point]);
    let ec_key = element(
        SEQUENCE,
        &[
            &element(INTEGER, &[&[1]]),
            &element(OCTET_STRING, &[&private]),
            &element(PUBLIC_HALF, &[&bits]),
        ],
    );
    Some(element(
        SEQUENCE,
        &[
            &element(INTEGER, &[&[0]]),
            &element(SEQUENCE, &[algorithm]),
            &element(OCTET_STRING, &[&ec_key]),
        ],
    ))
}

/// The number that is an EC key's secret, if it stands there alone.
fn private_half<'a>(key: &'a PrivateKeyDer<'_>) -> Option<&'a [u8]> {
    let ec_key = match key {
        PrivateKeyDer::Pkcs8(der) => {
            let mut info = Der(Der(der.secret_pkcs8_der()).value(SEQUENCE)?);
            info.value(INTEGER)?;
            info.value(SEQUENCE)?;
            info.value(OCTET_STRING)?
        }
        PrivateKeyDer::Sec1(der) => der.secret_sec1_der(),
        _ => return None,
    };
    let mut ec_key = Der(Der(ec_key).value(SEQUENCE)?);
    if ec_key.value(INTEGER)? != [1] {
        return None;
    }
    let private = ec_key.value(OCTET_STRING)?;
    ec_key.value(PARAMETERS);
    ec_key.value(PUBLIC_HALF).is_none().then_some(private)
}

/// Some writers leave out zeros at the front, or add one.
fn padded(number: &[u8], len: usize) -> Option<Vec<u8>> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let digits = &number[zeros..];
    let mut padded = vec![0; len.checked_sub(digits.len())?];
    padded.extend_from_slice(digits);
    Some(padded)
}

/// What is left to be read.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// What is in the next element, if it has this tag. Otherwise it stays.
    fn value(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81 | 0x82 => {
                let (len, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                let len = len
                    .iter()
                    .fold(0, |len, byte| len << 8 | usize::from(*byte));
                (len, rest)
            }
            _ => return None,
        };
        if *found != tag {
            return None;
        }
        let (value, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some(value)
    }
}

/// An element of these parts: of an EC key, so that two bytes are enough for its length.
fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let value = parts.concat();
    let [high, low] = u16::try_from(value.len())
        .expect("the parts of an EC key")
        .to_be_bytes();
    let mut element = match (high, low) {
        (0, 0..=0x7f) => vec![tag, low],
        (0, _) => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    element.extend(value);
    element
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use rustls::crypto::ring::sign::any_supported_type;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    const P256: &[u8] = include_bytes!("../../../testbed/keystore/alice-p256.pem");
    const P256_KEY: &[u8] = include_bytes!("../../../testbed/keystore/alice-p256.key");
    const P256_SEC1: &[u8] = include_bytes!("../../../testbed/keystore/alice-p256.sec1.key");
    const P384: &[u8] = include_bytes!("../../../testbed/keystore/alice-p384.pem");
    const P384_KEY: &[u8] = include_bytes!("../../../testbed/keystore/alice-p384.key");

    fn certificate(pem: &[u8]) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem).expect("a certificate")
    }

    fn key(pem: &[u8]) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(pem).expect("a key")
    }

    #[test]
    fn a_key_out_of_a_keystore_is_completed_by_its_certificate() {
        for (pem, of) in [(P256_KEY, P256), (P256_SEC1, P256), (P384_KEY, P384)] {
            let (key, certificate) = (key(pem), certificate(of));
            assert!(any_supported_type(&key).is_err(), "or this proves nothing");
            let completed = completed(key, &certificate);
            let signer = any_supported_type(&completed).expect("both halves");
            let parsed = ParsedCertificate::try_from(&certificate).expect("a certificate");
            let spki = signer.public_key().expect("it has one");
            assert_eq!(spki, parsed.subject_public_key_info());
        }
    }

    /// ring compares the halves.
    #[test]
    fn halves_of_two_keys_are_not_taken() {
        let other = rcgen::KeyPair::generate().expect("keys can be made");
        let params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
        let other = params.self_signed(&other).expect("a certificate");
        for of in [other.der(), &certificate(P384)] {
            assert!(any_supported_type(&completed(key(P256_KEY), of)).is_err());
        }
    }

    #[test]
    fn other_keys_stay_as_they_are() {
        let certificate = certificate(P256);
        for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ED25519] {
            let whole = rcgen::KeyPair::generate_for(algorithm).expect("keys can be made");
            let der = PrivateKeyDer::Pkcs8(whole.serialize_der().into());
            assert_eq!(completed(der.clone_key(), &certificate), der);
        }
    }

    /// No length of a file that is not what it seems leads out of it.
    #[test]
    fn what_is_cut_off_or_changed_is_left_alone_or_refused() {
        let whole = key(P256_KEY);
        let whole = whole.secret_der();
        let certificate = certificate(P256);
        for at in 0..whole.len() {
            let cut = PrivateKeyDer::Pkcs8(whole[..at].to_vec().into());
            assert_eq!(completed(cut.clone_key(), &certificate), cut, "cut at {at}");
            for byte in [0, 0x7f, 0x81, 0x82, 0xff] {
                let mut changed = whole.to_vec();
                changed[at] = byte;
                completed(PrivateKeyDer::Pkcs8(changed.into()), &certificate);
            }
        }
    }

    #[test]
    fn numbers_have_the_length_of_the_curve() {
        assert_eq!(padded(&[1, 2], 4), Some(vec![0, 0, 1, 2]));
        assert_eq!(padded(&[0, 1, 2], 2), Some(vec![1, 2]));
        assert_eq!(padded(&[1, 2, 3], 2), None);
    }
}
