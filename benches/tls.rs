//! The mutex over TLS beside the mutex in the clear, in turns, on one server that speaks both.
//!
//! `cargo bench --features tls` measures, `-- --test` runs everything once. It starts its own server.

use std::hint::black_box;

use criterion::Criterion;
use zklock::{Client, Mutex, Tls};

use testbed::Server;
use testbed::certificates::Authority;
use testbed::measure::bench::Bench;
use testbed::measure::table::{self, Target};

/// Java compiles what has run often; let it do so before anything is compared.
const WARM_UP: u32 = 3_000;

fn main() {
    let authority = Authority::new("bench");
    let own = authority.certify("server", &["127.0.0.1"]);
    let mut criterion = Criterion::default().configure_from_args();
    let testing = std::env::args().any(|arg| arg == "--test");
    let mut bench = Bench::new(&mut criterion, "TLS");
    for protocol in ["TLSv1.3", "TLSv1.2"] {
        let server = Server::builder()
            .optimised()
            .secure(&own.store, &authority.file(), "none", protocol)
            .start();
        let tls = Tls::pem(authority.file()).expect("good files");
        let sealed = Client::builder(&server.secure_connect_string()).tls(tls);
        let sealed = sealed.connect().expect("the server serves");
        let clear = Client::connect(&server.connect_string()).expect("the server serves");
        let lock = |client, path| Mutex::new(client, path).expect("a good path");
        let (sealed, clear) = (lock(&sealed, "/sealed"), lock(&clear, "/clear"));
        for _ in 0..if testing { 1 } else { WARM_UP } {
            cycle(&sealed);
            cycle(&clear);
        }
        let name = format!("idle cycle, {protocol}");
        let in_the_clear: (&str, &dyn Fn()) = ("in the clear", &|| cycle(&clear));
        bench.row_in_turns(&name, Target::Reported, in_the_clear, || cycle(&sealed));
    }
    let rows = bench.finish();
    criterion.final_summary();
    if !testing {
        table::print(&rows);
    }
}

fn cycle(lock: &Mutex) {
    drop(black_box(lock.lock().expect("healthy")));
}
