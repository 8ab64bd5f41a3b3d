//! The progress display.

use std::io::{IsTerminal, Write};
use std::time::Instant;

/// One line that changes on a terminal, or a line for each tenth elsewhere.
pub(crate) struct Progress {
    pub(crate) total: usize,
    shown: usize,
    terminal: bool,
    began: Instant,
}

impl Progress {
    pub(crate) fn new(total: usize) -> Self {
        Self {
            total,
            shown: 0,
            terminal: std::io::stdout().is_terminal(),
            began: Instant::now(),
        }
    }

    pub(crate) fn show(&mut self, done: usize) {
        let step = if self.terminal { 100 } else { 10 };
        if done * step / self.total == self.shown * step / self.total {
            return;
        }
        self.shown = done;
        let (percent, seconds) = (done * 100 / self.total, self.began.elapsed().as_secs_f64());
        let bar = format!("{:<20}", "#".repeat(percent / 5));
        let line = format!(
            "[{bar}] {percent:3} %  {done} of {} sections, {seconds:.1} s",
            self.total
        );
        if self.terminal {
            print!("\r{line} ");
            let _ = std::io::stdout().flush();
        } else {
            println!("{line}");
        }
    }

    pub(crate) fn end_line(&self) {
        if self.terminal {
            println!();
        }
    }
}
