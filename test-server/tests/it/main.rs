//! The server against clients that were not written for it, and beside Apache ZooKeeper.

mod clients;
mod differential;
mod ensemble;
mod hostile;
mod verbs;
mod wire;
