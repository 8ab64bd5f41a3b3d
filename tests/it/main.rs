//! Tests on servers, in folders by what they are about.
//!
//! They run on either server, as `ZKLOCK_TEST_SERVER` says: on that of `test-server/` (`embedded`),
//! which is in this process, or on Apache ZooKeeper (`zookeeper`, also if it says nothing). These need
//! Apache's, and get it either way:
//!
//! | where | why |
//! |---|---|
//! | the failovers of `outages` | several servers |
//! | `tls`, `sasl` | the server has neither |
//! | `slow_networks` | how much a slow link carries depends on how soon answers come, and ours come too soon |

mod fixtures;
mod history;
mod puppet;

mod connections;
mod faults;
mod peers;
mod promises;
mod recipes;
mod tools;
