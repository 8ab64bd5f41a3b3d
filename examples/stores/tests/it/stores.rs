//! Each store as the story knows it.

use std::fmt;
use std::path::PathBuf;

use fenced_stores::{WriteError, file, postgresql, redis, sqlite, trigger, zookeeper};
use postgres::NoTls;
use testbed::RawSession;
use zklock::FencingToken;

use crate::holder::{Held, SOON, T};

/// The document of all stories. Each has a store, or a database, of its own.
pub(crate) const NAME: &str = "plan";

/// Why a write was not done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Late,
    Failed(String),
}

impl<E: fmt::Debug> From<WriteError<E>> for Refused {
    fn from(error: WriteError<E>) -> Self {
        match error {
            WriteError::Late => Self::Late,
            WriteError::Store(error) => Self::Failed(format!("{error:?}")),
        }
    }
}

pub(crate) trait Store {
    /// Brings the token, and reads.
    fn take_over(&mut self, held: &Held) -> Result<String, Refused>;

    fn write(&mut self, held: &Held, body: &str) -> Result<(), Refused>;

    /// Writes as [`write`](Self::write) does, with a pause in the middle, if it has one.
    fn write_slowly(
        &mut self,
        _held: &Held,
        _body: &str,
        _pause: &mut dyn FnMut(),
    ) -> Result<(), Refused> {
        unreachable!("it is one step of the server")
    }

    /// What programs do that know nothing of tokens.
    fn write_unguarded(&mut self, body: &str);

    fn read(&mut self) -> String;
}

/// Where a store is, for this process and others.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    Postgresql(String),
    Trigger(String),
    Sqlite(PathBuf),
    Redis(String),
    File(PathBuf),
    /// A node, on the servers of the lock.
    Zookeeper {
        servers: String,
        node: String,
    },
}

impl Place {
    /// As a variable of the environment has it.
    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::Postgresql(address) => format!("postgresql {address}"),
            Self::Trigger(address) => format!("trigger {address}"),
            Self::Sqlite(path) => format!("sqlite {}", path.display()),
            Self::Redis(address) => format!("redis {address}"),
            Self::File(path) => format!("file {}", path.display()),
            Self::Zookeeper { servers, node } => format!("zookeeper {servers} {node}"),
        }
    }

    pub(crate) fn from_text(text: &str) -> Self {
        let (kind, address) = text.split_once(' ').expect("a kind and an address");
        let address = address.to_owned();
        match kind {
            "postgresql" => Self::Postgresql(address),
            "trigger" => Self::Trigger(address),
            "sqlite" => Self::Sqlite(address.into()),
            "redis" => Self::Redis(address),
            "file" => Self::File(address.into()),
            "zookeeper" => {
                let (servers, node) = address.split_once(' ').expect("servers and a node");
                Self::Zookeeper {
                    servers: servers.to_owned(),
                    node: node.to_owned(),
                }
            }
            _ => panic!("not a store: {text}"),
        }
    }

    pub(crate) fn open(&self) -> Box<dyn Store> {
        match self {
            Self::Postgresql(address) => {
                let client = postgres::Client::connect(address, NoTls).expect("it serves");
                Box::new(Postgresql(client))
            }
            Self::Trigger(address) => {
                Box::new(Trigger(trigger::connect(address, T).expect("it serves")))
            }
            Self::Sqlite(path) => {
                let connection = rusqlite::Connection::open(path).expect("a file");
                connection.busy_timeout(SOON).expect("a time");
                Box::new(Sqlite(connection))
            }
            Self::Redis(address) => {
                let client = ::redis::Client::open(address.as_str()).expect("well-formed");
                Box::new(Redis(client.get_connection().expect("it serves")))
            }
            Self::File(path) => Box::new(File(path.clone())),
            Self::Zookeeper { servers, node } => Box::new(Zookeeper {
                servers: servers.clone(),
                node: node.clone(),
            }),
        }
    }
}

struct Postgresql(postgres::Client);

impl Store for Postgresql {
    fn take_over(&mut self, held: &Held) -> Result<String, Refused> {
        Ok(postgresql::take_over(&mut self.0, NAME, held.token)?)
    }

    fn write(&mut self, held: &Held, body: &str) -> Result<(), Refused> {
        Ok(postgresql::write(&mut self.0, NAME, body, held.token)?)
    }

    fn write_unguarded(&mut self, body: &str) {
        let update = "UPDATE documents SET body = $2 WHERE name = $1";
        let changed = self.0.execute(update, &[&NAME, &body]).expect("it serves");
        assert_eq!(changed, 1);
    }

    fn read(&mut self) -> String {
        let select = "SELECT body FROM documents WHERE name = $1";
        self.0.query_one(select, &[&NAME]).expect("a row").get(0)
    }
}

struct Trigger(postgres::Client);

impl Trigger {
    const UPDATE: &str = "INSERT INTO orders (name, body) VALUES ($1, $2)
        ON CONFLICT (name) DO UPDATE SET body = EXCLUDED.body";

    fn update(
        &mut self,
        token: FencingToken,
        body: &str,
        pause: &mut dyn FnMut(),
    ) -> Result<(), Refused> {
        let mut transaction = trigger::take_over(&mut self.0, "orders", token)?;
        transaction
            .execute(Self::UPDATE, &[&NAME, &body])
            .map_err(trigger::late_or_not)?;
        pause();
        Ok(transaction.commit().map_err(trigger::late_or_not)?)
    }
}

impl Store for Trigger {
    fn take_over(&mut self, held: &Held) -> Result<String, Refused> {
        let mut transaction = trigger::take_over(&mut self.0, "orders", held.token)?;
        let select = "SELECT body FROM orders WHERE name = $1";
        let row = transaction.query_opt(select, &[&NAME]);
        let body = row.expect("it serves").map(|row| row.get(0));
        transaction.commit().map_err(trigger::late_or_not)?;
        Ok(body.unwrap_or_default())
    }

    fn write(&mut self, held: &Held, body: &str) -> Result<(), Refused> {
        self.update(held.token, body, &mut || {})
    }

    fn write_slowly(
        &mut self,
        held: &Held,
        body: &str,
        pause: &mut dyn FnMut(),
    ) -> Result<(), Refused> {
        self.update(held.token, body, pause)
    }

    fn write_unguarded(&mut self, body: &str) {
        let off = "ALTER TABLE orders DISABLE TRIGGER fenced";
        self.0.batch_execute(off).expect("the owner of the table");
        let written = self.0.execute(Self::UPDATE, &[&NAME, &body]);
        written.expect("it serves");
    }

    fn read(&mut self) -> String {
        let select = "SELECT body FROM orders WHERE name = $1";
        self.0.query_one(select, &[&NAME]).expect("a row").get(0)
    }
}

struct Sqlite(rusqlite::Connection);

impl Store for Sqlite {
    fn take_over(&mut self, held: &Held) -> Result<String, Refused> {
        Ok(sqlite::take_over(&self.0, NAME, held.token)?)
    }

    fn write(&mut self, held: &Held, body: &str) -> Result<(), Refused> {
        Ok(sqlite::write(&self.0, NAME, body, held.token)?)
    }

    fn write_slowly(
        &mut self,
        held: &Held,
        body: &str,
        pause: &mut dyn FnMut(),
    ) -> Result<(), Refused> {
        let begun = self.0.execute_batch("BEGIN IMMEDIATE");
        begun.expect("nobody else writes");
        sqlite::write(&self.0, NAME, body, held.token)?;
        pause();
        let committed = self.0.execute_batch("COMMIT");
        committed.map_err(|error| Refused::Failed(error.to_string()))
    }

    fn write_unguarded(&mut self, body: &str) {
        let update = "UPDATE documents SET body = ?2 WHERE name = ?1";
        let changed = self.0.execute(update, [NAME, body]).expect("a file");
        assert_eq!(changed, 1);
    }

    fn read(&mut self) -> String {
        let select = "SELECT body FROM documents WHERE name = ?1";
        let row = self.0.query_row(select, [NAME], |row| row.get(0));
        row.expect("a row")
    }
}

struct Redis(::redis::Connection);

impl Store for Redis {
    fn take_over(&mut self, held: &Held) -> Result<String, Refused> {
        Ok(redis::take_over(&mut self.0, NAME, held.token)?)
    }

    fn write(&mut self, held: &Held, body: &str) -> Result<(), Refused> {
        Ok(redis::write(&mut self.0, NAME, body, held.token)?)
    }

    fn write_unguarded(&mut self, body: &str) {
        let mut set = ::redis::cmd("HSET");
        let set = set.arg(NAME).arg("body").arg(body);
        set.exec(&mut self.0).expect("it serves");
    }

    fn read(&mut self) -> String {
        let mut get = ::redis::cmd("HGET");
        let get = get.arg(NAME).arg("body");
        get.query(&mut self.0).expect("it is there")
    }
}

struct File(PathBuf);

impl Store for File {
    fn take_over(&mut self, held: &Held) -> Result<String, Refused> {
        file::update(&self.0, held.token, str::to_owned)?;
        Ok(self.read())
    }

    fn write(&mut self, held: &Held, body: &str) -> Result<(), Refused> {
        Ok(file::update(&self.0, held.token, |_before| {
            body.to_owned()
        })?)
    }

    fn write_slowly(
        &mut self,
        held: &Held,
        body: &str,
        pause: &mut dyn FnMut(),
    ) -> Result<(), Refused> {
        let written = file::update(&self.0, held.token, |_before| {
            pause();
            body.to_owned()
        });
        Ok(written?)
    }

    fn write_unguarded(&mut self, body: &str) {
        std::fs::write(&self.0, format!("0\n{body}")).expect("a file");
    }

    fn read(&mut self) -> String {
        file::read(&self.0).expect("a file")
    }
}

struct Zookeeper {
    servers: String,
    node: String,
}

impl Zookeeper {
    /// A session that knows of no lock.
    fn session(&self) -> RawSession {
        let address = self.servers.parse().expect("one server");
        RawSession::open(address, SOON).expect("it serves")
    }
}

impl Store for Zookeeper {
    fn take_over(&mut self, held: &Held) -> Result<String, Refused> {
        zookeeper::read(&held.client, &self.node)
            .map_err(|error| Refused::Failed(error.to_string()))
    }

    fn write(&mut self, held: &Held, body: &str) -> Result<(), Refused> {
        Ok(zookeeper::write(&held.guard, &self.node, body)?)
    }

    fn write_unguarded(&mut self, body: &str) {
        let written = self.session().set_data(&self.node, body.as_bytes());
        written.expect("it is there");
    }

    fn read(&mut self) -> String {
        let data = self.session().data(&self.node).expect("it is there");
        String::from_utf8(data).expect("text")
    }
}
