//! Metrics of locks for Prometheus: threads take turns under a lock, and whoever asks is shown what
//! that costs them.
//!
//! ```text
//! cargo run --features metrics --example metrics -- --listen 127.0.0.1:9464   # in two terminals,
//! curl http://127.0.0.1:9464/metrics                                          # with two ports
//! ```
//!
//! The exporter comes without an HTTP server of its own, which would bring an asynchronous runtime;
//! a program that has one already passes the text on there.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use zklock::{Client, MetricsObserver, Mutex};

/// Where waits and holds are told apart, in seconds.
const BUCKETS: &[f64] = &[0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];
/// The exporter keeps what it was told as it came until it is asked, or until this is over.
const UPKEEP: Duration = Duration::from_secs(5);
/// For a client that says nothing.
const PATIENCE: Duration = Duration::from_secs(2);

/// Takes turns under a lock, and says what that costs.
#[derive(Parser)]
struct Arguments {
    /// ZooKeeper's servers: host:port,host:port/chroot
    #[arg(long, env = "ZK_CONNECT", default_value = "localhost:2181")]
    servers: String,
    /// The lock's path. The metrics call it "orders".
    #[arg(long, default_value = "/locks/orders")]
    lock: String,
    /// Threads that want it.
    #[arg(long, default_value = "4")]
    threads: u32,
    /// How long they do.
    #[arg(long, default_value = "60")]
    seconds: u64,
    /// Where to show the metrics meanwhile. They are printed at the end in any case.
    #[arg(long)]
    listen: Option<SocketAddr>,
}

/// All that is asked when somebody wants to see the metrics.
#[derive(Clone)]
struct Metrics {
    exporter: PrometheusHandle,
    observer: MetricsObserver,
    client: Client,
}

impl Metrics {
    fn text(&self) -> String {
        // What no event tells is recorded when it is asked for.
        self.observer.record(&self.client.stats());
        self.exporter.render()
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("metrics: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    // Before the client: the facade drops what comes while nobody listens.
    let exporter = PrometheusBuilder::new()
        .set_buckets(BUCKETS)?
        .install_recorder()?;
    let observer = MetricsObserver::new();
    let client = Client::builder(&arguments.servers)
        .observer(observer.clone())
        .connect()?;
    let lock = Mutex::builder(&client, &arguments.lock)
        .label("orders")
        .max_handoffs(8)
        .build()?;
    let metrics = Metrics {
        exporter,
        observer,
        client,
    };
    if let Some(address) = arguments.listen {
        let listener = TcpListener::bind(address)?;
        println!("http://{}/metrics", listener.local_addr()?);
        let metrics = metrics.clone();
        std::thread::spawn(move || serve(&listener, &metrics));
    }
    let exporter = metrics.exporter.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(UPKEEP);
            exporter.run_upkeep();
        }
    });
    work(arguments, &lock);
    println!("{}", metrics.text());
    Ok(())
}

fn work(arguments: &Arguments, lock: &Mutex) {
    let until = Instant::now() + Duration::from_secs(arguments.seconds);
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                while Instant::now() < until {
                    match lock.try_lock_until(until) {
                        // The work.
                        Ok(Some(_guard)) => std::thread::sleep(Duration::from_millis(5)),
                        Ok(None) => break,
                        Err(error) => eprintln!("metrics: {error}"),
                    }
                }
            });
        }
    });
}

/// Answers whatever it is asked with the metrics, one client after the other.
fn serve(listener: &TcpListener, metrics: &Metrics) {
    for client in listener.incoming() {
        if let Err(error) = client.and_then(|client| answer(&client, metrics)) {
            eprintln!("metrics: {error}");
        }
    }
}

fn answer(mut client: &TcpStream, metrics: &Metrics) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    // An empty line ends the request.
    for line in BufReader::new(client).lines() {
        if line?.is_empty() {
            break;
        }
    }
    let text = metrics.text();
    write!(
        client,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{text}",
        text.len()
    )
}
