//! `zklock run` and `zklock hold` where there are no Unix processes: said to be missing.

use crate::arguments::{ConnectionArguments, Run};
use crate::status::Failure;

/// No process is a part of a run here.
pub(crate) fn if_we_are_a_part() -> Option<u8> {
    None
}

pub(crate) fn run(_connection: &ConnectionArguments, _arguments: &Run) -> u8 {
    missing("run")
}

fn missing(verb: &str) -> u8 {
    let message = format!(
        "`zklock {verb}` is missing on this system: it needs the processes and signals of Unix; the \
         verbs that look at locks work here"
    );
    crate::fail(&Failure::usage(message))
}

pub(crate) mod hold {
    use crate::arguments::{ConnectionArguments, Hold};

    pub(crate) fn hold(_connection: &ConnectionArguments, _arguments: &Hold) -> u8 {
        super::missing("hold")
    }
}
