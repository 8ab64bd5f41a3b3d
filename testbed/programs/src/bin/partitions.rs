//! Plays every partition in every setting, and prints what came of it as a table.
//!
//! `partitions [--elections] [PART_OF_A_NAME]` leaves out troubles whose name has no such part; the
//! holders are leaders, or else have mutexes. It fails if somebody got in before the holder was told,
//! or nobody where somebody had to.

use std::process::ExitCode;
use std::time::Duration;

use testbed_programs::partition::{Case, Prize, Trouble, table};

/// Session timeouts in seconds, each with limits (in ticks of a second) below and above it.
const SETTINGS: [(u64, u32); 4] = [(4, 3), (4, 10), (10, 5), (10, 15)];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    let prize = match arguments.next_if(|argument| argument == "--elections") {
        Some(_) => Prize::Leadership,
        None => Prize::Mutex,
    };
    let part = arguments.next().unwrap_or_default();
    let mut outcomes = Vec::new();
    for (session, sync_limit) in SETTINGS {
        let ensemble = Case::ensemble(sync_limit);
        for (number, trouble) in Trouble::ALL.into_iter().enumerate() {
            if !trouble.to_string().contains(&part) {
                continue;
            }
            eprintln!("{trouble}, T = {session} s, syncLimit x tick = {sync_limit} s");
            let case = Case {
                trouble,
                prize,
                session: Duration::from_secs(session),
                sync_limit,
            };
            let came = case.run(&ensemble, &format!("/partitions/{session}/{number}"));
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
