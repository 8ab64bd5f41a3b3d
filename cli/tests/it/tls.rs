//! The command and servers that speak TLS.

use std::path::Path;
use std::process::Command;

use crate::fixtures::{Said, bare, said};
use testbed::certificates::{Authority, Certified};
use testbed::{Ensemble, Server};

const PROTOCOL: &str = "TLSv1.3";

/// A server that speaks TLS, and those who sign for it.
struct Ground {
    authority: Authority,
    server: Server,
}

impl Ground {
    /// `names` are those of the server's certificate; `client_auth` is `none` or `need`.
    fn start(names: &[&str], client_auth: &str) -> Self {
        let authority = Authority::new("tests");
        let own: Certified = authority.certify("server", names);
        let server = Server::builder()
            .secure(&own.store, &authority.file(), client_auth, PROTOCOL)
            .start();
        Self { authority, server }
    }

    /// The program, told of the server's port for TLS and of whom to trust.
    fn zklock<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = bare();
        command
            .env("ZK_CONNECT", self.server.secure_connect_string())
            .env("ZK_TLS_CA", self.authority.file())
            .args(arguments);
        command
    }
}

/// It said that a server over TLS was no server, as it had asked it in the clear.
#[test]
fn the_doctor_speaks_tls() {
    let ground = Ground::start(&["127.0.0.1"], "none");
    let doctor = said(&mut ground.zklock(["doctor"]));
    assert_eq!(doctor.status, 0, "{}", doctor.err);
    let host = ground.server.secure_connect_string();
    for part in [
        &*format!("server {host}: serves over TLS"),
        "round trip: median",
        "lock and unlock /zklock-doctor: median",
        "! one server is named",
    ] {
        assert!(doctor.out.contains(part), "{part}: {}", doctor.out);
    }
    assert!(!doctor.out.contains("did not say"), "{}", doctor.out);
    // In the clear at that port: why, and the way out.
    let mut clear = bare();
    clear.env("ZK_CONNECT", &host);
    let clear = said(clear.args(["doctor", "--connect-timeout=2s"]));
    assert_eq!(clear.status, 69, "{}", clear.err);
    assert!(clear.out.contains("at a port for TLS"), "{}", clear.out);
}

/// Over TLS no server says its role; the ensemble's own list does, to whoever may read it.
#[test]
fn the_doctor_finds_observers_over_tls() {
    let authority = Authority::new("tests");
    let own = authority.certify("server", &["127.0.0.1"]);
    let builder = Server::builder().secure(&own.store, &authority.file(), "none", PROTOCOL);
    let ensemble = Ensemble::start_observed(2, 1, &builder);
    let voter = ensemble.server(0).secure_connect_string();
    let mut doctor = bare();
    doctor.env("ZK_CONNECT", voter);
    let doctor = said(doctor.env("ZK_TLS_CA", authority.file()).arg("doctor"));
    assert_eq!(doctor.status, 0, "{}", doctor.err);
    assert!(
        doctor.out.contains("! 127.0.0.1 is an observer"),
        "{}",
        doctor.out
    );
}

/// Says what is to be done in words of the command, not of the library.
#[track_caller]
fn advises(said: &Said, status: i32, words: &[&str]) {
    assert_eq!(said.status, status, "{}", said.err);
    for word in words {
        assert!(said.err.contains(word), "{word}: {}", said.err);
    }
    assert!(!said.err.contains("Tls::"), "{}", said.err);
    assert!(!said.err.contains("DnsName"), "{}", said.err);
}

/// They named methods of the Rust library.
#[test]
fn advice_names_flags_and_variables() {
    let path = "/tls/advice";
    let run = ["run", "-vv", "--connect-timeout=2s", path, "--", "true"];
    let name = ["--tls-server-name", "ZK_TLS_SERVER_NAME"];
    let identity = [
        "--tls-certificate",
        "--tls-key",
        "ZK_TLS_CERTIFICATE",
        "ZK_TLS_KEY",
    ];

    let elsewhere = Ground::start(&["zk1.example"], "none");
    advises(&said(&mut elsewhere.zklock(run)), 69, &name);
    let mut named = elsewhere.zklock(run);
    let named = said(named.env("ZK_TLS_SERVER_NAME", "zk1.example"));
    assert_eq!(named.status, 0, "{}", named.err);
    let mut no_name = elsewhere.zklock(run);
    advises(&said(no_name.env("ZK_TLS_SERVER_NAME", "a b")), 64, &name);

    let strict = Ground::start(&["127.0.0.1"], "need");
    advises(&said(&mut strict.zklock(run)), 69, &identity);
    let batch = strict.authority.certify("batch", &[]);
    let with = |command: &mut Command, flag: &str, file: &Path| {
        command.arg(flag).arg(file);
    };
    let mut half = strict.zklock([]);
    with(&mut half, "--tls-certificate", &batch.certificate);
    advises(&said(half.args(run)), 64, &identity);
    let mut known = strict.zklock([]);
    with(&mut known, "--tls-certificate", &batch.certificate);
    with(&mut known, "--tls-key", &batch.key);
    let known = said(known.args(run));
    assert_eq!(known.status, 0, "{}", known.err);
}
