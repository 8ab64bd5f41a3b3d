//! docs/failover.svg: how long several clients wait for one lock while the leader of three servers
//! is killed, as their observers hear it.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, unbounded};
use testbed::{Ensemble, Server};
use zklock::event::Acquired;
use zklock::{Client, ConnectionEvent, Mutex, Observer};

use super::svg::{LEFT, Picture};

const CLIENTS: usize = 6;
/// What each does under the lock.
const SECTION: Duration = Duration::from_millis(10);
const LASTS: Duration = Duration::from_secs(12);
const KILL_AT: Duration = Duration::from_secs(4);
/// Before it counts, all have met.
const WARM_UP: Duration = Duration::from_secs(2);

const HEIGHT: f64 = 340.0;
const RIGHT: f64 = 616.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 286.0;
/// Powers of ten of milliseconds at the ends of the axis of waits.
const LOW: i32 = 0;
const HIGH: i32 = 4;

const STYLE: &str = "
    .cut { fill: #d55e0022 } .kill { stroke: #d55e00; stroke-width: 2 } text.kill { fill: #d55e00; stroke: none }
    path { fill: none; stroke-width: 4; stroke-linecap: round }
    .s0 { stroke: #0072b2 } .s1 { stroke: #009e73 } .s2 { stroke: #cc79a7 }
    .s3 { stroke: #56b4e9 } .s4 { stroke: #e69f00 } .s5 { stroke: #888 }
    @media (prefers-color-scheme: dark) { .kill { stroke: #e69f00 } text.kill { fill: #e69f00 } }
";

/// What one client's observer heard, and when.
enum Heard {
    Waited(Duration),
    Connection(ConnectionEvent),
}

type Note = (usize, Instant, Heard);

struct Notes {
    client: usize,
    tell: Sender<Note>,
}

impl Notes {
    fn note(&self, heard: Heard) {
        // Who gathers them has gone when it is over.
        let _ = self.tell.send((self.client, Instant::now(), heard));
    }
}

impl Observer for Notes {
    fn acquired(&self, acquired: &Acquired) {
        self.note(Heard::Waited(acquired.waited));
    }

    fn connection(&self, event: &ConnectionEvent) {
        self.note(Heard::Connection(event.clone()));
    }
}

/// In seconds from the beginning.
struct Failover {
    killed: f64,
    /// Of a client, when it had the lock, and how long it had waited.
    waits: Vec<(usize, f64, Duration)>,
    /// From the first broken connection to the last that stood again.
    cut: Option<(f64, f64)>,
    sessions_lost: usize,
}

pub(crate) fn run() {
    let failover = watch();
    let longest = failover.waits.iter().map(|(_, _, waited)| *waited).max();
    let before = failover.waits.iter().filter(|one| one.1 < failover.killed);
    let mut before: Vec<_> = before.map(|(_, _, waited)| *waited).collect();
    before.sort_unstable();
    println!(
        "{} waits; {:?} at the median before the kill, {:?} at the most; out of contact {:?}; \
         {} sessions lost",
        failover.waits.len(),
        before.get(before.len() / 2),
        longest,
        failover.cut,
        failover.sessions_lost,
    );
    draw(&failover).save("failover.svg");
}

fn watch() -> Failover {
    let ensemble = Ensemble::start_with(3, &Server::builder().optimised());
    let leader = ensemble.leader();
    let (tell, told) = unbounded();
    let servers = ensemble.connect_string();
    let clients: Vec<Client> = (0..CLIENTS)
        .map(|client| {
            let tell = tell.clone();
            let observer = Notes { client, tell };
            let client = Client::builder(&servers).observer(observer);
            client.connect().expect("the ensemble serves")
        })
        .collect();
    let began = Instant::now() + WARM_UP;
    let ends = began + LASTS;
    let killed = std::thread::scope(|scope| {
        for client in &clients {
            scope.spawn(move || work(client, ends));
        }
        std::thread::sleep((began + KILL_AT).saturating_duration_since(Instant::now()));
        ensemble.kill(leader);
        Instant::now()
    });
    clients.iter().for_each(Client::close);
    let notes: Vec<Note> = told.try_iter().collect();
    gather(&notes, began, killed, ends)
}

/// Takes one turn after the other.
fn work(client: &Client, ends: Instant) {
    let lock = Mutex::new(client, "/failover").expect("a good path");
    while Instant::now() < ends {
        let guard = lock.lock().expect("the session outlives the leader");
        std::thread::sleep(SECTION);
        // A release that is not confirmed yet goes on in the background.
        drop(guard);
    }
}

fn gather(notes: &[Note], began: Instant, killed: Instant, ends: Instant) -> Failover {
    let seconds = |at: Instant| at.saturating_duration_since(began).as_secs_f64();
    let counted = notes.iter().filter(|(_, at, _)| (began..ends).contains(at));
    let (mut waits, mut cuts, mut contacts, mut sessions_lost) = (vec![], vec![], vec![], 0);
    for (client, at, heard) in counted {
        let at = seconds(*at);
        match heard {
            Heard::Waited(waited) => waits.push((*client, at, *waited)),
            Heard::Connection(ConnectionEvent::Suspended) => cuts.push(at),
            Heard::Connection(ConnectionEvent::Lost) => sessions_lost += 1,
            Heard::Connection(_) => contacts.push(at),
        }
    }
    let first = cuts.into_iter().min_by(f64::total_cmp);
    let last = contacts.into_iter().max_by(f64::total_cmp);
    Failover {
        killed: seconds(killed),
        waits,
        cut: first.zip(last),
        sessions_lost,
    }
}

fn draw(failover: &Failover) -> Picture {
    let about = "Waits for one lock over time, while the leader is killed";
    let title = "How long six clients waited for one lock, each time they got it";
    let mut picture = Picture::new(HEIGHT, about, title, STYLE);
    axes(&mut picture);
    if let Some((from, to)) = failover.cut {
        picture.rectangle("cut", (x(from), TOP), (x(to), BOTTOM));
    }
    let at = x(failover.killed);
    picture.line("kill", (at, TOP), (at, BOTTOM));
    let words = "the leader is killed; shaded: until all clients are in contact again";
    picture.text((at, TOP - 8.0), "middle", "kill", words);
    for client in 0..CLIENTS {
        dots(&mut picture, client, failover);
    }
    picture
}

/// All waits of one client, each a line of no length with round ends.
fn dots(picture: &mut Picture, client: usize, failover: &Failover) {
    let mut path = String::new();
    for (_, at, waited) in failover.waits.iter().filter(|one| one.0 == client) {
        write!(path, "M{:.1} {:.1}h0", x(*at), y(*waited)).expect("a String takes all");
    }
    picture.put(format_args!("<path class=\"s{client}\" d=\"{path}\"/>"));
}

fn axes(picture: &mut Picture) {
    for (power, words) in (LOW..=HIGH).zip(["1 ms", "10 ms", "100 ms", "1 s", "10 s"]) {
        let waited = Duration::from_millis(10u64.pow(power.unsigned_abs()));
        picture.rung(y(waited), RIGHT, words);
    }
    for second in (0..=LASTS.as_secs()).step_by(2) {
        let at = x(Duration::from_secs(second).as_secs_f64());
        picture.text((at, BOTTOM + 18.0), "middle", "", &second.to_string());
    }
    let middle = f64::midpoint(LEFT, RIGHT);
    let words = "seconds; a colour for each client";
    picture.text((middle, BOTTOM + 40.0), "middle", "", words);
}

fn x(seconds: f64) -> f64 {
    LEFT + (RIGHT - LEFT) * seconds / LASTS.as_secs_f64()
}

fn y(waited: Duration) -> f64 {
    let power = (waited.as_secs_f64() * 1000.0).log10();
    let part = (power - f64::from(LOW)) / f64::from(HIGH - LOW);
    BOTTOM - (BOTTOM - TOP) * part.clamp(0.0, 1.0)
}
