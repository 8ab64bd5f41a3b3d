//! Tests on servers, in folders by what they are about.
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

mod fixtures;
mod history;

mod connections;
mod faults;
mod peers;
mod promises;
mod recipes;
mod testbed;
mod tools;
