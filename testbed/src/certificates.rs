//! A certificate authority for tests, and what it has signed, as PEM files in a folder of their own.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use tempfile::TempDir;

/// An authority. Its files go when it is dropped.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// Where a certificate and its key are.
#[derive(Debug, Clone)]
pub struct Certified {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Both in one file, as ZooKeeper wants them.
    pub store: PathBuf,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = named(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("keys can be made");
        let certificate = params.self_signed(&key).expect("an authority");
        let folder = tempfile::Builder::new()
            .prefix("zklock-certificates-")
            .tempdir()
            .expect("a temporary folder can be made");
        fs::write(folder.path().join("ca.pem"), certificate.pem()).expect("the folder is ours");
        Authority {
            folder,
            issuer: Issuer::new(params, key),
        }
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The certificate of somebody with these names and addresses.
    pub fn certify(&self, common_name: &str, names: &[&str]) -> Certified {
        self.sign(common_name, named(common_name, names))
    }

    /// One that was good, long ago.
    pub fn certify_long_ago(&self, common_name: &str, names: &[&str]) -> Certified {
        let mut params = named(common_name, names);
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
        self.sign(common_name, params)
    }

    /// One that may sign others.
    pub fn certify_a_ca(&self, common_name: &str, names: &[&str]) -> Certified {
        let mut params = named(common_name, names);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        self.sign(common_name, params)
    }

    /// One that clients may show, and no server.
    pub fn certify_for_clients(&self, common_name: &str, names: &[&str]) -> Certified {
        let mut params = named(common_name, names);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(common_name, params)
    }

    fn sign(&self, common_name: &str, mut params: CertificateParams) -> Certified {
        params.use_authority_key_identifier_extension = true;
        if params.extended_key_usages.is_empty() {
            params.extended_key_usages = vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ];
        }
        let key = KeyPair::generate().expect("keys can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        let (certificate, key) = (certificate.pem(), key.serialize_pem());
        let put = |end: &str, text: &str| {
            let file = self.folder.path().join(format!("{common_name}.{end}"));
            write_secret(&file, text);
            file
        };
        Certified {
            store: put("store.pem", &format!("{key}{certificate}")),
            certificate: put("pem", &certificate),
            key: put("key", &key),
        }
    }
}

fn named(common_name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("good names");
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params
}

fn write_secret(file: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(file, text).expect("the folder is ours");
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("the file is ours");
}
