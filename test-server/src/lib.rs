//! A ZooKeeper server for tests: in memory, in the process of the test, with faults on request.
//!
//! ```
//! use std::time::Duration;
//!
//! let server = zklock_test::Server::start()?;
//! let client = zklock::Client::connect(&server.connect_string())?;
//! let guard = zklock::Mutex::new(&client, "/locks/nightly")?.lock()?;
//! server.expire(client.session_id());
//! assert!(guard.lost().recv_timeout(Duration::from_secs(10)).is_ok());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! No Java, no container, no proxy: [`Server::start`] takes about a millisecond. Any client of
//! ZooKeeper can connect, in this process or in another one of this machine. The server listens on
//! the loopback interface alone, keeps nothing on disk, has one thread, and is gone when it is
//! dropped.
//!
//! # What can be done to it
//! Each verb has taken effect when it returns.
//!
//! | trouble | verb |
//! |---|---|
//! | a session ends | [`Server::expire`] |
//! | a connection breaks | [`Connections::cut`] |
//! | a network that swallows everything, or one direction of it | [`Connections::hold`], [`deafen`](Connections::deafen), [`mute`](Connections::mute) |
//! | a slow network | [`Connections::slow`] |
//! | the n-th request or reply of a kind is lost | [`Server::lose_request`], [`Server::lose_reply`] |
//! | it comes late | [`Server::hold_request`], [`Server::hold_reply`] |
//! | it is answered with an error | [`Server::answer`] |
//! | the server hangs | [`Server::pause`], [`Server::resume`] |
//! | the server restarts | [`Server::stop`], [`Server::restart`] |
//! | time passes | [`Server::advance_clock`] |
//! | all of it ends | [`Server::heal`] |
//! | a leader dies, another is elected | [`Ensemble::kill`], [`Ensemble::elect`] |
//! | servers do not reach each other, both ways or one | [`Ensemble::partition`], [`isolate`](Ensemble::isolate), [`cut`](Ensemble::cut), [`mute`](Ensemble::mute), [`deafen`](Ensemble::deafen) |
//! | a server knows later than others | [`Ensemble::lag`] |
//!
//! What clients did shows in [`Server::node`], [`nodes`](Server::nodes),
//! [`sessions`](Server::sessions), [`watches`](Server::watches), [`asked`](Server::asked) and
//! [`count`](Server::count), and [`Server::wait_until`] waits for it, without a sleep.
//!
//! # How much of ZooKeeper it is
//! It behaves as a standalone server of the 3.8 line, or of the 3.9 line ([`Line`]): the tree, sessions and their expiry, resumed
//! sessions, ephemeral and sequential nodes, containers, access lists (`world`, `auth`, `digest`,
//! `ip`), one-shot, persistent and recursive watches, `multi`, and the four-letter words `ruok`,
//! `srvr`, `stat`, `mntr`, `cons`, `conf`, `dump`, `isro`, `envi`, `wchs`, `wchc` and `wchp`. A test
//! plays random operations of several sessions on it and on Apache ZooKeeper of that line, and compares every
//! answer, stat and event.
//!
//! [`Ensemble`] is several of them with a leader: a model of what clients can see of an ensemble, which
//! says for itself how far it goes.
//!
//! It has no TLS, no SASL, no quotas and no nodes with a time to live, and refuses them
//! as a ZooKeeper does that was not set up for them. It lists children in no useful order, as
//! servers do, but in the same order in each run.

#![warn(missing_debug_implementations, missing_docs)]

mod builder;
mod cluster;
mod connections;
mod core;
mod driver;
mod ensemble;
mod op;
mod server;
mod trap;
mod trouble;
mod view;

pub use zklock_protocol::{Acl, ErrorCode, Stat};

pub use self::builder::ServerBuilder;
pub use self::connections::Connections;
pub use self::core::Line;
pub use self::ensemble::{Ensemble, EnsembleBuilder};
pub use self::op::{Asked, Matcher, Op};
pub use self::server::Server;
pub use self::trap::{Hold, Trap};
pub use self::trouble::Loss;
pub use self::view::{Node, Session, Watch, WatchKind};

/// The examples of the pages run as they stand.
#[cfg(doctest)]
#[doc = include_str!("../../docs/testing.md")]
struct Pages;
