//! The four-letter words by which servers say how they are.

use std::fmt::Write as _;

use super::Core;

/// Of a server that has no leader.
const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

impl Core {
    /// The answer; none to a word that it does not know.
    pub(crate) fn say(&self, word: [u8; 4]) -> Option<String> {
        if !self.serves() {
            return match &word {
                b"ruok" => Some("imok".to_owned()),
                b"isro" => Some("null".to_owned()),
                b"envi" => Some(self.environment()),
                _ => Some(NOT_SERVING.to_owned()),
            };
        }
        Some(match &word {
            b"ruok" => "imok".to_owned(),
            b"isro" => "rw".to_owned(),
            b"srvr" => self.describe(false),
            b"stat" => self.describe(true),
            b"mntr" => self.monitor(),
            b"cons" => self.list_connections(true) + "\n",
            b"conf" => self.configuration(),
            b"dump" => self.dump(),
            b"wchs" => self.summarise_watches(),
            b"wchc" => self.watches_by_session(),
            b"wchp" => self.watches_by_path(),
            b"envi" => self.environment(),
            _ => return None,
        })
    }

    fn version(&self) -> &'static str {
        self.settings.line.version()
    }

    fn environment(&self) -> String {
        format!("Environment:\nzookeeper.version={}\n", self.version())
    }

    fn describe(&self, with_clients: bool) -> String {
        let mut text = format!("Zookeeper version: {}, in memory\n", self.version());
        if with_clients {
            text += "Clients:\n";
            text += &self.list_connections(false);
            text.push('\n');
        }
        let lines = [
            ("Latency min/avg/max", "0/0.0/0".to_owned()),
            ("Received", self.received.to_string()),
            ("Sent", self.sent.to_string()),
            ("Connections", self.connections.len().to_string()),
            ("Outstanding", "0".to_owned()),
            ("Zxid", format!("0x{:x}", self.zxid)),
            ("Mode", self.mode().to_owned()),
            ("Node count", self.tree.count().to_string()),
        ];
        for (name, value) in lines {
            writeln!(text, "{name}: {value}").expect("writing to a String cannot fail");
        }
        text
    }

    fn monitor(&self) -> String {
        let ephemerals: usize = self
            .tree
            .ephemerals()
            .values()
            .map(super::tree::Names::len)
            .sum();
        let watches = self.data_watches.len() + self.child_watches.len();
        let numbers = [
            ("packets_received", self.received.to_string()),
            ("packets_sent", self.sent.to_string()),
            ("num_alive_connections", self.connections.len().to_string()),
            ("outstanding_requests", "0".to_owned()),
            ("server_state", self.mode().to_owned()),
            ("znode_count", self.tree.count().to_string()),
            ("watch_count", watches.to_string()),
            ("ephemerals_count", ephemerals.to_string()),
            ("approximate_data_size", self.tree.bytes().to_string()),
            ("global_sessions", self.sessions.len().to_string()),
        ];
        let mut text = format!("zk_version\t{}, in memory\n", self.version());
        for (name, value) in numbers {
            writeln!(text, "zk_{name}\t{value}").expect("writing to a String cannot fail");
        }
        text
    }

    fn list_connections(&self, at_length: bool) -> String {
        let mut text = String::new();
        for connection in self.connections.values() {
            let (received, sent) = (connection.received, connection.sent);
            write!(
                text,
                " /{}[1](queued=0,recved={received},sent={sent}",
                connection.peer
            )
            .expect("writing to a String cannot fail");
            if let Some(session) = connection.session.filter(|_| at_length) {
                write!(
                    text,
                    ",sid=0x{session:x},to={}",
                    connection.timeout.as_millis()
                )
                .expect("writing to a String cannot fail");
            }
            text += ")\n";
        }
        text
    }

    fn configuration(&self) -> String {
        let settings = &self.settings;
        format!(
            "tickTime={}\nminSessionTimeout={}\nmaxSessionTimeout={}\nserverId=0\n",
            settings.tick.as_millis(),
            settings.min_session_timeout.as_millis(),
            settings.max_session_timeout.as_millis(),
        )
    }

    fn dump(&self) -> String {
        let mut text = format!(
            "SessionTracker dump:\nSession Sets ({}):\n",
            self.sessions.len()
        );
        for (id, session) in self.sessions.iter() {
            let at = session.expires_at.as_millis();
            writeln!(text, "1 expire at {at}:\n\t0x{id:x}").expect("a String takes everything");
        }
        let owners = self.tree.ephemerals();
        write!(
            text,
            "ephemeral nodes dump:\nSessions with Ephemerals ({}):\n",
            owners.len()
        )
        .expect("writing to a String cannot fail");
        for (id, owned) in owners {
            writeln!(text, "0x{id:x}:").expect("writing to a String cannot fail");
            for path in owned {
                writeln!(text, "\t{path}").expect("writing to a String cannot fail");
            }
        }
        text
    }

    /// As in ZooKeeper, only of watches on data.
    fn summarise_watches(&self) -> String {
        let watches = &self.data_watches;
        format!(
            "{} connections watching {} paths\nTotal watches:{}\n",
            watches.watchers(),
            watches.watched_paths(),
            watches.len()
        )
    }

    fn watches_by_session(&self) -> String {
        let mut text = String::new();
        for (watcher, paths) in self.data_watches.by_connection() {
            writeln!(text, "0x{:x}", self.session_of(*watcher)).expect("a String takes everything");
            for path in paths {
                writeln!(text, "\t{path}").expect("writing to a String cannot fail");
            }
        }
        text + "\n"
    }

    fn watches_by_path(&self) -> String {
        let mut text = String::new();
        for (path, watchers) in self.data_watches.by_path() {
            writeln!(text, "{path}").expect("writing to a String cannot fail");
            for watcher in watchers {
                writeln!(text, "\t0x{:x}", self.session_of(watcher))
                    .expect("a String takes everything");
            }
        }
        text + "\n"
    }

    fn session_of(&self, connection: super::ConnectionId) -> i64 {
        let connection = self.connections.get(&connection);
        connection
            .and_then(|known| known.session)
            .unwrap_or_default()
    }
}
