//! The verbs that look at locks and at ZooKeeper.

pub(crate) mod doctor;
pub(crate) mod entry;
pub(crate) mod interfere;
pub(crate) mod jobs;
pub(crate) mod kind;
pub(crate) mod ls;
pub(crate) mod who;

use std::io::{self, Write};

use serde::Serialize;

/// On one line.
fn write_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)
}
