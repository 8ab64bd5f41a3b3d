//! Many readers and a rare writer over a directory of files that belong together.
//!
//! A reader must see all files of one version. The writer replaces them one by one under the write
//! lock, and then becomes a reader to check what it wrote: others read again by then, and no other
//! writer gets in between. At the end the program says how often it read and wrote, and whether any
//! reader saw a mix.
//!
//! ```text
//! cargo run --example catalogue -- --directory /tmp/catalogue      # in two terminals
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use zklock::{Client, RwLock};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const FILES: [&str; 5] = ["articles", "prices", "stock", "images", "index"];

/// Reads a catalogue from many threads, and writes it now and then.
#[derive(Parser)]
struct Arguments {
    /// ZooKeeper's servers: host:port,host:port/chroot
    #[arg(long, env = "ZK_CONNECT", default_value = "localhost:2181")]
    servers: String,
    /// The lock's path.
    #[arg(long, default_value = "/locks/catalogue")]
    lock: String,
    /// Where the files are.
    #[arg(long)]
    directory: PathBuf,
    /// Reading threads.
    #[arg(long, default_value = "8")]
    readers: u32,
    #[arg(long, default_value = "5")]
    seconds: u64,
    /// Between two writes of this process.
    #[arg(long, default_value = "500")]
    write_every_ms: u64,
}

#[derive(Default)]
struct Counts {
    reads: AtomicU64,
    writes: AtomicU64,
    mixed: AtomicU64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("catalogue: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether every reader saw one version.
fn run(arguments: &Arguments) -> Result<bool> {
    let Arguments { directory, .. } = arguments;
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let client = Client::connect(&arguments.servers)?;
    let lock = RwLock::new(&client, &arguments.lock)?;
    let counts = Counts::default();
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    std::thread::scope(|scope| -> Result<()> {
        let readers: Vec<_> = (0..arguments.readers)
            .map(|_| scope.spawn(|| read_until(end, &lock, directory, &counts)))
            .collect();
        let every = Duration::from_millis(arguments.write_every_ms);
        let written = write_until(end, every, &lock, directory, &counts);
        for reader in readers {
            reader.join().expect("no panic")?;
        }
        written
    })?;
    let mixed = counts.mixed.into_inner();
    println!(
        "{} reads, {} writes, {mixed} readers saw a mix of versions",
        counts.reads.into_inner(),
        counts.writes.into_inner(),
    );
    Ok(mixed == 0)
}

fn read_until(end: Instant, lock: &RwLock, directory: &Path, counts: &Counts) -> Result<()> {
    while let Some(_reading) = lock.try_read_until(end)? {
        counts.reads.fetch_add(1, Ordering::Relaxed);
        if !is_consistent(directory)? {
            counts.mixed.fetch_add(1, Ordering::Relaxed);
        }
        if Instant::now() >= end {
            break;
        }
    }
    Ok(())
}

fn write_until(
    end: Instant,
    every: Duration,
    lock: &RwLock,
    directory: &Path,
    counts: &Counts,
) -> Result<()> {
    while let Some(writing) = lock.try_write_until(end)? {
        let version = writing.fencing_token()?.to_string();
        for file in FILES {
            fs::write(directory.join(file), &version)?;
        }
        counts.writes.fetch_add(1, Ordering::Relaxed);
        let checking = writing.downgrade().map_err(zklock::Error::from)?;
        if read_version(directory, FILES[0])? != version || !is_consistent(directory)? {
            counts.mixed.fetch_add(1, Ordering::Relaxed);
        }
        drop(checking);
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        std::thread::sleep(every.min(left));
    }
    Ok(())
}

/// Whether all files are of one version.
fn is_consistent(directory: &Path) -> Result<bool> {
    let first = read_version(directory, FILES[0])?;
    for file in &FILES[1..] {
        if read_version(directory, file)? != first {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Empty before the first write.
fn read_version(directory: &Path, file: &str) -> Result<String> {
    let path = directory.join(file);
    match fs::read_to_string(&path) {
        Ok(version) => Ok(version),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(format!("{}: {error}", path.display()).into()),
    }
}
