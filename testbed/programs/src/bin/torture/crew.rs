//! The worker processes, each with a way of its own to each server.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crate::program;
use crate::stage::Plan;
use testbed::{Ensemble, Proxy, process};
use testbed_programs::history::History;
use testbed_programs::random::Random;

pub(crate) const WORKERS: usize = 3;

/// The folder of the lock.
pub(crate) const PATH: &str = "/torture/lock";

/// All workers. Dropping this kills them.
pub(crate) struct Crew {
    places: Vec<Place>,
}

/// Where one worker works, and the next when it is gone.
pub(crate) struct Place {
    number: usize,
    /// By server.
    pub(crate) doors: Vec<Proxy>,
    generation: u32,
    worker: Option<Worker>,
}

/// A running process.
struct Worker {
    name: String,
    child: Child,
    answers: Receiver<String>,
}

impl Crew {
    pub(crate) fn hire(
        plan: &Plan,
        ensemble: &Ensemble,
        history: &History,
        random: &mut Random,
    ) -> Crew {
        let door = |index| Proxy::start(ensemble.server(index).addr());
        let mut crew = Crew {
            places: (0..WORKERS)
                .map(|number| Place {
                    number,
                    doors: (0..ensemble.size()).map(door).collect(),
                    generation: 0,
                    worker: None,
                })
                .collect(),
        };
        for place in &mut crew.places {
            place.start(plan, history, random.draw());
        }
        crew
    }

    pub(crate) fn place(&self, number: usize) -> &Place {
        &self.places[number]
    }

    pub(crate) fn place_mut(&mut self, number: usize) -> &mut Place {
        &mut self.places[number]
    }

    /// Where the process of this id works.
    pub(crate) fn place_of(&self, pid: u32) -> Option<usize> {
        let works = |place: &Place| {
            place
                .worker
                .as_ref()
                .is_some_and(|worker| worker.child.id() == pid)
        };
        self.places.iter().position(works)
    }

    /// Lets every worker end what it does. Returns when all have, or at the deadline.
    pub(crate) fn rest(&mut self, deadline: Instant) {
        let workers = || self.places.iter().filter_map(|place| place.worker.as_ref());
        for worker in workers() {
            worker.say("rest");
        }
        for worker in workers() {
            let answer = worker.answers.recv_timeout(left(deadline));
            if answer.as_deref() != Ok("resting") {
                eprintln!("{} does not rest: {answer:?}", worker.name);
            }
        }
    }

    /// Sends every worker home, and kills those who do not go.
    pub(crate) fn close(&mut self, deadline: Instant) {
        let mut workers: Vec<Worker> = self
            .places
            .iter_mut()
            .filter_map(|place| place.worker.take())
            .collect();
        for worker in &workers {
            worker.say("close");
        }
        for worker in &mut workers {
            // The end of its output is its own end.
            let _ = worker.answers.recv_timeout(left(deadline));
        }
    }
}

impl Place {
    /// Starts the next process here.
    pub(crate) fn start(&mut self, plan: &Plan, history: &History, seed: u64) {
        let name = format!("w{}.{}", self.number, self.generation);
        self.generation += 1;
        history.note("nemesis", format_args!("start process={name}"));
        let own_history: PathBuf = plan.folder.join(format!("{name}.history"));
        let doors: Vec<String> = self.doors.iter().map(Proxy::connect_string).collect();
        let mut child = program::worker(&plan.lock)
            .args([&doors.join(","), PATH])
            .args([&plan.session.as_millis().to_string(), &name])
            .arg(own_history)
            .arg(seed.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("built together with this");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (said, answers) = mpsc::channel();
        thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            lines.for_each(|line| drop(said.send(line)));
        });
        self.worker = Some(Worker {
            name,
            child,
            answers,
        });
    }

    /// Kills the process that works here (SIGKILL).
    pub(crate) fn kill(&mut self, history: &History) {
        if let Some(mut worker) = self.worker.take() {
            // Who has died by itself was not killed: the checker finds that it never came to an end.
            if matches!(worker.child.try_wait(), Ok(None)) {
                history.note("nemesis", format_args!("kill process={}", worker.name));
            }
            drop(worker);
        }
    }

    /// Freezes the process (SIGSTOP).
    pub(crate) fn stop(&self, history: &History) {
        if let Some(worker) = &self.worker {
            history.note("nemesis", format_args!("stop process={}", worker.name));
            process::stop(worker.child.id());
        }
    }

    /// Has the process say more than servers take in a moment, beside what it does.
    pub(crate) fn load(&self) {
        if let Some(worker) = &self.worker {
            worker.say("load");
        }
    }

    pub(crate) fn cont(&self, history: &History) {
        if let Some(worker) = &self.worker {
            process::cont(worker.child.id());
            history.note("nemesis", format_args!("cont process={}", worker.name));
        }
    }
}

impl Worker {
    fn say(&self, word: &str) {
        let Some(mut input) = self.child.stdin.as_ref() else {
            return;
        };
        // Who has died by itself is found by the checker.
        if let Err(error) = writeln!(input, "{word}") {
            eprintln!("{} does not listen: {error}", self.name);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Fails when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
