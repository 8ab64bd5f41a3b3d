//! Together with real Curator, Java's client: each recipe, in both directions.

use testbed::Curator;

use super::{SECTION, SHORT};
use crate::fixtures::server;

mod barriers;
mod election;
mod multi_lock;
mod mutex;
mod revocation;
mod rw_lock;
mod semaphore;
mod semaphore_mutex;

/// How Curator's sections are signed.
const CURATORS: &str = "curator";

/// Curator's actor, with a session of its own.
fn curator() -> Curator {
    Curator::start(&server().connect_string())
}

/// Has Curator try for a short time.
#[track_caller]
fn tries(curator: &mut Curator, name: &str) -> bool {
    match curator
        .say(&format!("acquire-for {name} {}", SHORT.as_millis()))
        .as_str()
    {
        "yes" => true,
        "no" => false,
        other => panic!("Curator said {other:?}"),
    }
}
