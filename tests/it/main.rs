//! Tests on real servers: one file for each recipe and one for each kind of trouble.

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
