//! TLS to a server: what it takes, the handshake, and what goes in and out in the clear.
//!
//! A [`Channel`] seals and opens bytes, and only that: its lock is never held across a call to a
//! socket. It is the innermost of the link's locks.

mod any_name;
mod channel;
mod ec_key;
mod failure;
mod settings;

pub(super) use self::channel::Channel;
pub use self::settings::Tls;
