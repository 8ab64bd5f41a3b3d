//! Tests on servers: one file for each recipe and one for each kind of trouble.
//!
//! They run on either server, as `ZKLOCK_TEST_SERVER` says: on that of `test-server/` (`embedded`),
//! which is in this process, or on Apache ZooKeeper (`zookeeper`, also if it says nothing). These need
//! Apache's, and get it either way:
//!
//! | where | why |
//! |---|---|
//! | `partitions`, the failovers of `outages`, ensembles in `testbed` | several servers |
//! | `tls`, `sasl` | the server has neither |
//! | those of `testbed` that kill processes | it is none |
//! | `slow_networks` | how much a slow link carries depends on how soon answers come, and ours come too soon |

#[path = "../support/mod.rs"]
mod support;

#[cfg(feature = "tls")]
#[path = "../support/certificates.rs"]
#[allow(dead_code, reason = "the tests of the link use all of it")]
mod certificates;
#[cfg(feature = "tls")]
#[path = "../support/terminator.rs"]
mod terminator;

mod barriers;
mod budgets;
mod company;
mod connecting;
mod curator;
mod debugging;
mod examples;
mod fenced_writes;
mod fixtures;
mod guards;
mod history;
mod home_grown;
mod kazoo;
mod keeper;
mod leaks;
mod lock_registry;
mod long_queues;
mod looking_around;
mod lost_replies;
mod many_permits;
mod maximum;
#[cfg(feature = "metrics")]
mod metrics;
mod multi_lock;
mod mutex;
mod names;
mod observing;
mod options;
mod outages;
mod partitions;
mod positions;
mod processes;
mod reentry;
mod refusals;
mod revocation;
mod rw_lock;
#[cfg(feature = "sasl")]
mod sasl;
mod semaphore;
mod sessions;
mod simple_mutex;
mod slow_networks;
mod stuck_logger;
mod tenures;
mod testbed;
mod three_languages;
#[cfg(feature = "tls")]
mod tls;
mod together;
