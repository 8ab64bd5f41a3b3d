//! Troubles: one file for each kind.

mod lost_replies;
mod outages;
mod refusals;
mod sessions;
mod slow_networks;
mod stuck_logger;
