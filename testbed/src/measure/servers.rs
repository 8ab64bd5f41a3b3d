//! Where a bench finds the server that it measures with.

use crate::Server;

/// A server that was named, or one that was started and ends with this.
pub struct Servers {
    connect_string: String,
    _own: Option<Server>,
}

impl Servers {
    /// What `given` names, or else `ZK_CONNECT`; without either, a server is started.
    pub fn given_or_started(given: Option<String>) -> Servers {
        let given = given.or_else(|| std::env::var("ZK_CONNECT").ok());
        match given {
            Some(connect_string) => Servers {
                connect_string,
                _own: None,
            },
            None => {
                let own = Server::builder().optimised().start();
                Servers {
                    connect_string: own.connect_string(),
                    _own: Some(own),
                }
            }
        }
    }

    pub fn connect_string(&self) -> &str {
        &self.connect_string
    }
}
