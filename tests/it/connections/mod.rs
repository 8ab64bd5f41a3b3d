//! Getting in: which hosts, what kind of server, who we are, and how it is sealed.

#[cfg(feature = "zookeeper")]
mod by_the_crate;
mod connecting;
mod keeper;
#[cfg(feature = "sasl")]
mod sasl;
#[cfg(feature = "tls")]
mod tls;
