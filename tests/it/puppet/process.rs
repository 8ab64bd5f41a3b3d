//! What a puppet does: it takes locks when told to, and says what came of it.
//!
//! It answers each line of its channel with one line.
//! `run RECIPE THREADS SECTIONS HISTORY` runs sections under a recipe at its path, and appends to the
//! history what each was allowed to do, its token, and when it began and ended.

use std::fs::OpenOptions;
use std::io::Write;
#[cfg(feature = "zookeeper")]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use testbed::puppet::{self, answer};
use zklock::{
    Begun, Client, ClientConfig, FencingToken, LockState, MultiLock, Mutex, MutexGuard, OncePer,
    Rerun, RwLock, Semaphore, SemaphoreMutex, SimpleMutex, TlsConfig,
};

use super::Orders;
use crate::fixtures::T;

/// Obeys until nobody commands any more.
pub(super) fn obey(orders: &Orders) {
    let _ = env_logger::try_init();
    // Whatever of it the logger writes, the library has it all to say.
    log::set_max_level(log::LevelFilter::Trace);
    let config = ClientConfig {
        servers: orders.servers.clone(),
        session_timeout_ms: Some(T.as_millis().try_into().expect("some seconds")),
        tls: orders.ca.clone().map(|ca| TlsConfig {
            ca: Some(ca.into()),
            ..TlsConfig::default()
        }),
        ..ClientConfig::default()
    };
    let client = config
        .builder()
        .expect("good settings")
        .connect()
        .expect("the server of the test");
    let path = orders.path.as_str();
    let lock = Mutex::new(&client, path).expect("a good path");
    let mut guards: Vec<MutexGuard> = Vec::new();
    for line in puppet::orders() {
        let line = line.expect("text");
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["lock"] => match lock.lock() {
                Ok(guard) => {
                    guards.push(guard);
                    answer("ok");
                }
                Err(error) => answer(&format!("error {error:?}")),
            },
            ["unlock"] => match guards.pop().expect("locked before").unlock() {
                Ok(()) => answer("ok"),
                Err(error) => answer(&format!("error {error:?}")),
            },
            ["state"] => answer(&format!("{:?}", guards.last().expect("locked").state())),
            ["lost"] => {
                let guard = guards.last().expect("locked");
                answer(&format!("{:?}", guard.lost().try_recv()));
            }
            ["write", path, data] => {
                let guard = guards.last().expect("locked");
                match guard.transaction().set(path, *data, None).commit() {
                    Ok(_) => answer("ok"),
                    Err(error) => answer(&format!("error {error:?}")),
                }
            }
            ["token"] => match guards.last().expect("locked").fencing_token() {
                Ok(token) => answer(&token.to_string()),
                Err(error) => answer(&format!("error {error:?}")),
            },
            ["run", recipe, threads, sections, history] => {
                let threads = threads.parse().expect("a number");
                let sections = sections.parse().expect("a number");
                match *recipe {
                    "mutex" => run(threads, sections, history, |_, section| {
                        let guard = lock.lock().expect("its turn");
                        section("alone", Some(guard.fencing_token()));
                    }),
                    recipe => run_recipe(&client, path, recipe, threads, sections, history),
                }
                answer("ok");
            }
            ["jobs", every_ms, until, history] => {
                let every = Duration::from_millis(every_ms.parse().expect("a number"));
                let until = until.parse().expect("a number");
                jobs(&client, path, every, until, history);
                answer("ok");
            }
            ["fork"] => fork(&client, &lock, &mut guards),
            ["use-in-children", times] => {
                let times = times.parse().expect("a number");
                answer(&use_in_children(&client, &format!("{path}-rw"), times));
            }
            ["show-in-children", times] => {
                let times = times.parse().expect("a number");
                answer(&show_in_children(&client, &lock, &mut guards, times));
            }
            _ => panic!("not a command: {line}"),
        }
    }
}

/// Does what is due of a job, until its period `until` was begun, and appends to the history what it
/// did. A run that begins is one line, its end another; in between the process may be killed.
fn jobs(client: &Client, path: &str, every: Duration, until: i64, history: &str) {
    let history = OpenOptions::new().append(true).open(history);
    let mut history = history.expect("made by the test");
    let mut note = |line: String| {
        // One write, which the system appends as a whole.
        let line = format!("{line}\n");
        history.write_all(line.as_bytes()).expect("disk");
    };
    let job = OncePer::builder(client, path)
        .every(every)
        .catch_up(2)
        .after_death(Rerun::Again)
        .keep(1_000);
    let job = job.build().expect("good settings");
    loop {
        let run = match job.begin() {
            Ok(Begun::Run(run)) => run,
            Ok(Begun::Done(before)) => {
                if before.period().expect("of periods").number() >= until {
                    return;
                }
                // Until the next one is due.
                std::thread::sleep(every / 4);
                continue;
            }
            // The nemesis is at it.
            Err(error) if error.is_lock_lost() || error.is_connection_loss() => continue,
            Err(error) => panic!("{error}"),
        };
        let number = run.period().expect("of periods").number();
        let token = run.record().fencing_token();
        note(format!("began {number} {token} {}", nanos()));
        let dice = u128::from(std::process::id()) ^ (nanos() / 1_000);
        let eighths = u32::try_from(dice % 8).expect("less than 8");
        std::thread::sleep(every * eighths / 16);
        let before = nanos();
        if run.is_held() {
            note(format!("held {number} {token} {before}"));
        }
        let (word, ended) = match dice % 11 {
            0 => ("failed", run.failed("by the dice")),
            1 => {
                drop(run);
                ("failed", Ok(()))
            }
            _ => ("done", run.done()),
        };
        if ended.is_ok() {
            note(format!("{word} {number} {token} {}", nanos()));
        }
        if number >= until {
            return;
        }
    }
}

fn nanos() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_nanos()
}

/// Runs sections on several threads, and appends what each was allowed, its token, and when it
/// began and ended. `within` takes the lock, calls the section, and gives the lock back.
fn run(
    threads: usize,
    sections: usize,
    history: &str,
    within: impl Fn(usize, &mut dyn FnMut(&str, Option<zklock::Result<FencingToken>>)) + Sync,
) {
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut history = OpenOptions::new()
                    .append(true)
                    .open(history)
                    .expect("made by the test");
                for number in 0..sections {
                    within(number, &mut |right, token| {
                        let begun = nanos();
                        let token = token.map_or(0, |token| token.expect("held").as_u64());
                        std::thread::yield_now();
                        let ended = nanos();
                        let line = format!("{right} {token} {begun} {ended}\n");
                        // One write, which the system appends as a whole.
                        history.write_all(line.as_bytes()).expect("disk");
                    });
                }
            });
        }
    });
}

/// How many permits the semaphore of a history has.
const PERMITS: u32 = 3;

fn run_recipe(
    client: &Client,
    path: &str,
    recipe: &str,
    threads: usize,
    sections: usize,
    history: &str,
) {
    match recipe {
        "semaphore-mutex" => {
            let lock = SemaphoreMutex::new(client, path).expect("a good path");
            run(threads, sections, history, |_, section| {
                let guard = lock.lock().expect("its turn");
                section("alone", Some(guard.fencing_token()));
            });
        }
        "simple-mutex" => {
            let lock = SimpleMutex::new(client, &format!("{path}/lock")).expect("a good path");
            run(threads, sections, history, |_, section| {
                let guard = lock.lock().expect("its turn");
                section("alone", Some(guard.fencing_token()));
            });
        }
        "semaphore" => {
            let semaphore = Semaphore::new(client, path, PERMITS).expect("a good path");
            run(threads, sections, history, |number, section| {
                let count = if number % 4 == 0 { 2 } else { 1 };
                let permit = semaphore.acquire_many(count).expect("its turn");
                section(&count.to_string(), None);
                drop(permit);
            });
        }
        "rw" => {
            let lock = RwLock::new(client, path).expect("a good path");
            run(threads, sections, history, |number, section| {
                if number % 3 > 0 {
                    let guard = lock.read().expect("its turn");
                    section("shared", None);
                    drop(guard);
                } else {
                    let guard = lock.write().expect("its turn");
                    section("alone", Some(guard.fencing_token()));
                    if number % 2 > 0 {
                        let reading = guard.downgrade().expect("held");
                        section("shared", None);
                        drop(reading);
                    }
                }
            });
        }
        "multi" => {
            let paths = [format!("{path}/b"), format!("{path}/a")];
            let [b, a] = paths.map(|path| Mutex::new(client, &path).expect("a good path"));
            let rw = RwLock::new(client, &format!("{path}/c")).expect("a good path");
            let all = MultiLock::builder().with(&b).with(rw.write_side()).with(&a);
            let all = all.build().expect("different paths");
            run(threads, sections, history, |_, section| {
                let guard = all.lock().expect("its turn");
                let tokens = guard.fencing_tokens();
                let first = tokens.map(|tokens| tokens[0].expect("of a mutex"));
                section("alone", Some(first));
            });
        }
        other => panic!("not a recipe: {other}"),
    }
}

/// Uses what was inherited in a forked child, and says there what came of it.
fn fork(client: &Client, lock: &Mutex, guards: &mut Vec<MutexGuard>) {
    #[cfg(feature = "zookeeper")]
    let handle = client.zookeeper().expect("connected");
    let fork = fork::fork().expect("a child");
    if fork == fork::Fork::Child {
        let refused =
            |result: zklock::Result<()>| result.expect_err("the parent's client").is_forked();
        let all = refused(lock.lock().map(drop))
            && refused(lock.try_lock().map(drop))
            && refused(lock.try_lock_for(Duration::from_secs(1)).map(drop))
            && refused(lock.participants().map(drop));
        #[cfg(feature = "zookeeper")]
        let all = all
            && handle.is_over()
            && refused(client.zookeeper().map(drop))
            // It would wait for ever for a thread of the parent's.
            && catch_unwind(AssertUnwindSafe(|| handle.exists("/", false))).is_err();
        let lost = guards.iter().all(|guard| guard.state() == LockState::Lost);
        // Does nothing here; the parent's next answers show that.
        guards.clear();
        client.close();
        answer(if all && lost { "refused" } else { "let in" });
        std::process::exit(0);
    }
    if let fork::Fork::Parent(child) = fork {
        fork::waitpid(child).expect("ends by itself");
    }
}

/// Uses a read-write lock that was inherited, in forked children, while other threads lock in it
/// what they can. Says what came of that.
fn use_in_children(client: &Client, path: &str, times: u32) -> String {
    let busy = AtomicBool::new(true);
    let lock = RwLock::new(client, path).expect("a good path");
    let reading = lock.read().expect("free");
    let went_wrong = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while busy.load(Ordering::Relaxed) {
                    std::hint::black_box((lock.read_hold_count(), lock.is_held_in_this_process()));
                }
            });
        }
        let ended = (0..times).map(|_| match fork::fork().expect("a child") {
            fork::Fork::Child => {
                // A child that is stuck is ended, which its parent sees.
                std::thread::spawn(|| {
                    std::thread::sleep(Duration::from_secs(10));
                    std::process::abort();
                });
                let refused =
                    |result: zklock::Result<()>| result.is_err_and(|error| error.is_forked());
                let second = Duration::from_secs(1);
                let all = refused(lock.read().map(drop))
                    && refused(lock.try_read().map(drop))
                    && refused(lock.write().map(drop))
                    && refused(lock.try_write().map(drop))
                    && refused(lock.try_write_for(second).map(drop))
                    && refused(lock.participants().map(drop));
                let holds = lock.read_hold_count() > 0 || lock.is_held_in_this_process();
                std::process::exit(i32::from(!all || holds));
            }
            fork::Fork::Parent(child) => fork::waitpid(child).expect("ends by itself"),
        });
        // One that is stuck takes its time.
        let went_wrong = ended.into_iter().any(|status| status != 0);
        busy.store(false, Ordering::Relaxed);
        went_wrong
    });
    drop(reading);
    let what = if went_wrong {
        "stuck or let in"
    } else {
        "refused"
    };
    what.to_owned()
}

/// Shows and uses in forked children what they have inherited, while other threads lock in it what
/// they can. Says what the children showed if all were able to.
fn show_in_children(
    client: &Client,
    lock: &Mutex,
    guards: &mut Vec<MutexGuard>,
    times: u32,
) -> String {
    let busy = AtomicBool::new(true);
    let guard = guards.first().expect("locked");
    let (node, view) = (guard.path().to_owned(), guard.view());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while busy.load(Ordering::Relaxed) {
                    std::hint::black_box((client.state(), client.stats()));
                    std::hint::black_box((lock.is_held_in_this_process(), client.events()));
                }
            });
            scope.spawn(|| {
                while busy.load(Ordering::Relaxed) {
                    std::hint::black_box((view.state(), view.clone()));
                }
            });
        }
        let shown = (0..times).map(|_| match fork::fork().expect("a child") {
            fork::Fork::Child => {
                // A child that is stuck is ended, which its parent sees.
                std::thread::spawn(|| {
                    std::thread::sleep(Duration::from_secs(10));
                    std::process::abort();
                });
                let shown = format!("{client:?} {lock:?} {guards:?}");
                let is_said = shown.contains("is_forked") && !shown.contains(&node);
                let is_lost =
                    view.state() == LockState::Lost && view.clone().lost().recv().is_err();
                let guard = guards.pop().expect("locked");
                let is_lost = is_lost && guard.view().lost().recv().is_err();
                guard.retire();
                drop(guard);
                let is_over = client.events().recv().is_err();
                let is_refused = Mutex::new(client, lock.path()).is_err_and(|e| e.is_forked());
                let is_right = is_said && is_lost && is_over && is_refused;
                std::process::exit(i32::from(!is_right));
            }
            fork::Fork::Parent(child) => fork::waitpid(child).expect("ends by itself"),
        });
        let shown: Vec<_> = shown.collect();
        busy.store(false, Ordering::Relaxed);
        let stuck = shown.iter().filter(|status| **status != 0).count();
        format!("{stuck} of {times} stuck or wrong")
    })
}
