//! Getting in: which hosts, what kind of server, who we are, and how it is sealed.

mod connecting;
mod keeper;
#[cfg(feature = "sasl")]
mod sasl;
#[cfg(feature = "tls")]
mod tls;
