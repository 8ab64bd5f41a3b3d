//! What is made from the command line's own description: completions and man pages.

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::Arguments;

pub(crate) fn completions(shell: Shell, mut out: impl Write) -> io::Result<()> {
    // It panics when it cannot write, and a reader may leave.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "zklock", &mut script);
    out.write_all(&script)
}

pub(crate) fn man(dir: Option<&Path>, mut out: impl Write) -> io::Result<()> {
    match dir {
        Some(dir) => clap_mangen::generate_to(Arguments::command(), dir),
        None => clap_mangen::Man::new(Arguments::command()).render(&mut out),
    }
}
