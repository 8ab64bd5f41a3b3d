//! Those who want the locks, on the healthy side.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use testbed::{RawSession, wait_until};
use zklock::{AcquireOptions, CancelToken, Client, Election};

use super::{Prize, Servers};

const SOON: Duration = Duration::from_secs(30);

/// One waiting thread for each lock, all of one client. Dropping this ends the waits.
#[derive(Debug)]
pub(super) struct Contenders {
    got_in: Arc<Mutex<HashMap<String, Instant>>>,
    end: CancelToken,
    threads: Vec<JoinHandle<()>>,
}

impl Contenders {
    /// Queues for each lock, by servers other than the seat. Returns when all stand in line.
    pub(super) fn queue(
        servers: &Servers,
        seat: usize,
        paths: &[String],
        prize: Prize,
    ) -> Contenders {
        let healthy: Vec<_> = (0..servers.size())
            .filter(|index| *index != seat)
            .map(|index| servers.address(index))
            .collect();
        let addresses: Vec<_> = healthy.iter().map(ToString::to_string).collect();
        let client = Client::connect(&addresses.join(",")).expect("a quorum");
        let mut contenders = Contenders {
            got_in: Arc::default(),
            end: CancelToken::new(),
            threads: Vec::new(),
        };
        for path in paths {
            let thread = contenders.wait_for(&client, path, prize);
            contenders.threads.push(thread);
        }
        let mut raw = RawSession::open(healthy[0], SOON).expect("it serves");
        for path in paths {
            wait_until("holder and contender stand in line", SOON, || {
                raw.children(path).unwrap_or_default().len() == 2
            });
        }
        raw.close().expect("it serves");
        contenders
    }

    fn wait_for(&self, client: &Client, path: &str, prize: Prize) -> JoinHandle<()> {
        let (client, path, end) = (client.clone(), path.to_owned(), self.end.clone());
        let got_in = Arc::clone(&self.got_in);
        std::thread::spawn(move || {
            let options = AcquireOptions::new().cancel(&end);
            let won = match prize {
                Prize::Mutex => {
                    let lock = zklock::Mutex::new(&client, &path).expect("a good path");
                    lock.lock_with(options).map(|_guard| Instant::now())
                }
                Prize::Leadership => {
                    let election = Election::new(&client, &path).expect("a good path");
                    let led = election.campaign_with(options);
                    led.map(|_leadership| Instant::now())
                }
            };
            match won {
                Ok(now) => {
                    let mut got_in = got_in.lock().unwrap_or_else(PoisonError::into_inner);
                    got_in.insert(path, now);
                }
                Err(error) => assert!(error.is_cancelled(), "{error}"),
            }
        })
    }

    /// When the contender for this lock got in.
    pub(super) fn got_in(&self, path: &str) -> Option<Instant> {
        let got_in = self.got_in.lock().unwrap_or_else(PoisonError::into_inner);
        got_in.get(path).copied()
    }
}

impl Drop for Contenders {
    fn drop(&mut self) {
        self.end.cancel();
        for thread in self.threads.drain(..) {
            // Its panic has been reported, and a second one here would hide the first.
            let _ = thread.join();
        }
    }
}
