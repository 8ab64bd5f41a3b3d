//! Accounts of SASL DIGEST-MD5, with a real server.

use std::fs;
use std::time::Duration;

use testbed::Server;
use zklock::{Acl, Client, ConnectionEvent, Permissions};

use crate::fixtures::{SOON, mutex};

/// One of the passwords has what ends a line elsewhere.
const ACCOUNTS: &str = r#"Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required
  user_alice="open sesame"
  user_bob="pass;word";
};
"#;

struct Ground {
    server: Server,
    _folder: tempfile::TempDir,
}

fn start() -> Ground {
    let folder = tempfile::tempdir().expect("a folder");
    let accounts = folder.path().join("jaas.conf");
    fs::write(&accounts, ACCOUNTS).expect("the folder is ours");
    let server = Server::builder()
        .setting(
            "authProvider.1",
            "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        )
        .property(
            "java.security.auth.login.config",
            &accounts.to_string_lossy(),
        )
        .start();
    Ground {
        server,
        _folder: folder,
    }
}

impl Ground {
    fn client(&self, user: &str, password: &str) -> zklock::Result<Client> {
        Client::builder(&self.server.connect_string())
            .sasl_digest_md5(user, password)
            .acl(Acl::creator_all())
            .connect()
    }
}

#[test]
fn what_one_account_has_made_is_closed_to_others_also_after_a_restart() {
    let ground = start();
    let alice = ground.client("alice", "open sesame").expect("her password");
    let bob = ground.client("bob", "pass;word").expect("his password");
    let own = mutex(&alice, "/sasl/own");
    let guard = own.lock().expect("free");
    let error = mutex(&bob, "/sasl/own").try_lock().expect_err("closed");
    assert!(error.is_no_auth(), "{error}");

    // Logged in again on the next connection, before the release goes out.
    let events = alice.events();
    ground.server.restart();
    while events.recv_timeout(SOON).expect("it lives") != ConnectionEvent::Reconnected {}
    guard.unlock().expect("still hers");

    let named = Client::builder(&ground.server.connect_string())
        .sasl_digest_md5("alice", "open sesame")
        .acl(Acl::entry("sasl", "bob", Permissions::ALL))
        .connect()
        .expect("her password");
    // She makes the folder, and may do nothing in it.
    let error = mutex(&named, "/bobs").lock().expect_err("closed");
    assert!(error.is_no_auth(), "{error}");
    mutex(&bob, "/bobs")
        .lock()
        .expect("open to bob")
        .unlock()
        .expect("his");
}

#[test]
fn a_wrong_password_is_told_and_not_shown() {
    let ground = start();
    for user in ["alice", "nobody"] {
        let error = ground.client(user, "open barley").expect_err("wrong");
        assert!(error.is_no_auth(), "{error}");
        let text = format!("{error} {error:?}");
        assert!(text.contains("sasl") && !text.contains("barley"), "{text}");
    }
}

#[test]
fn a_server_without_accounts_is_told() {
    let error = Client::builder(&crate::fixtures::server().connect_string())
        .sasl_digest_md5("alice", "open sesame")
        .connect_timeout(Duration::from_secs(1))
        .connect()
        .expect_err("no SASL there");
    assert!(error.to_string().contains("SASL"), "{error}");
}
