//! Plays every partition in every setting, and prints what came of it as a table.
//!
//! `partitions [--in-memory] [--elections] [PART_OF_A_NAME]` leaves out troubles whose name has no
//! such part; the holders are leaders, or else have mutexes. With `--in-memory` it plays on the
//! ensemble for tests, ten times as fast. It fails if somebody got in before the holder was told, or
//! nobody where somebody had to.

use std::process::ExitCode;

use testbed_programs::partition::{Case, Prize, Servers, Trouble, table};

/// Session timeouts in ticks, each with limits below and above it.
const SETTINGS: [(u32, u32); 4] = [(4, 3), (4, 10), (10, 5), (10, 15)];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    let in_memory = arguments.next_if(|first| first == "--in-memory").is_some();
    let prize = match arguments.next_if(|argument| argument == "--elections") {
        Some(_) => Prize::Leadership,
        None => Prize::Mutex,
    };
    let part = arguments.next().unwrap_or_default();
    let mut outcomes = Vec::new();
    for (session, sync_limit) in SETTINGS {
        let servers = if in_memory {
            Servers::in_memory(sync_limit)
        } else {
            Servers::apache(sync_limit)
        };
        let tick = servers.tick();
        for (number, trouble) in Trouble::ALL.into_iter().enumerate() {
            if !trouble.to_string().contains(&part) {
                continue;
            }
            let case = Case {
                trouble,
                prize,
                session: tick * session,
                sync_limit,
            };
            let limit = tick * sync_limit;
            let timeout = case.session;
            eprintln!("{trouble}, T = {timeout:?}, syncLimit x tick = {limit:?}");
            let came = case.run(&servers, &format!("/partitions/{session}/{number}"));
            eprint!("{}", table(&came));
            outcomes.extend(came);
        }
    }
    print!("{}", table(&outcomes));
    let broken = outcomes
        .iter()
        .filter(|outcome| outcome.two_holders_for().is_some() || outcome.is_void())
        .count();
    eprintln!(
        "{} holders, {broken} not told before, or void",
        outcomes.len()
    );
    ExitCode::from(u8::from(broken > 0))
}
