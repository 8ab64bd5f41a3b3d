//! Three servers in memory, in a process of their own: whoever has no ZooKeeper has these.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use zklock_test::Ensemble;

use crate::Result;

/// What is asked of that process.
const KILL_LEADER: &str = "kill the leader";

/// That process. It ends when this is dropped, or when we do.
pub(crate) struct Servers {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    connect_string: String,
}

impl Servers {
    pub(crate) fn start() -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("servers")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the servers' process has no pipes".into());
        };
        let mut servers = Self {
            child,
            orders,
            answers: BufReader::new(answers),
            connect_string: String::new(),
        };
        servers.connect_string = servers.answer()?;
        Ok(servers)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn connect_string(&self) -> &str {
        &self.connect_string
    }

    /// Kills the one that leads, and says which it was.
    pub(crate) fn kill_leader(&mut self) -> Result<String> {
        writeln!(self.orders, "{KILL_LEADER}")?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        match line.trim() {
            "" => Err("the servers' process has ended".into()),
            answer => Ok(answer.to_owned()),
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// That process: serves until nobody can ask it for anything any more.
pub(crate) fn serve() -> Result<()> {
    let ensemble = Ensemble::start(3)?;
    say(&ensemble.connect_string())?;
    for order in io::stdin().lines() {
        if order? == KILL_LEADER {
            let leader = ensemble.leader();
            ensemble.kill(leader);
            say(&ensemble.server(leader).connect_string())?;
        }
    }
    Ok(())
}

fn say(line: &str) -> Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
