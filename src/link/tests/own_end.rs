//! The link ends by itself: a thread of it has panicked.
//!
//! Then nothing works any more, but probes once went on: the session was kept alive, and its locks
//! were nobody's until the process ended. Callers waited for answers that nobody would bring.

use super::*;

/// A session above with a fault: it panics where it is called.
struct Faulty {
    events: Sender<LinkEvent>,
    /// At the next look at the clock.
    on_clock: std::sync::atomic::AtomicBool,
}

const FAULT: &str = "a fault of the session above";

impl LinkObserver for Faulty {
    fn on_link(&self, event: LinkEvent) {
        if matches!(event, LinkEvent::Dialling(_) | LinkEvent::DialFailed(_)) {
            return;
        }
        let _ = self.events.send(event);
    }

    fn on_event(&self, _event: EventKind, path: &str, _number: u64) {
        assert_ne!(path, "/fault", "{FAULT}");
    }

    fn on_clock(&self) -> Option<Duration> {
        let fault = self.on_clock.load(std::sync::atomic::Ordering::SeqCst);
        assert!(!fault, "{FAULT}");
        None
    }
}

struct Inbox(Sender<Vec<Told>>);

impl Completion for Inbox {
    fn completed(&self, answers: Vec<Answer>) {
        let (answers, _) = apart(answers);
        let panics = matches!(answers[..], [Ok(Reply::Children(_))]);
        let _ = self.0.send(answers);
        assert!(!panics, "{FAULT}");
    }
}

struct Stage {
    link: Link,
    above: Arc<Faulty>,
    events: Receiver<LinkEvent>,
    caller: Caller,
    served: Served,
    connection: u64,
}

impl Stage {
    fn new(server: &FakeServer) -> Self {
        let (sender, events) = unbounded();
        let above = Arc::new(Faulty {
            events: sender,
            on_clock: false.into(),
        });
        let host = server.address.to_string();
        let config = config(vec![host.parse().expect("an address is a host")]);
        let link = Link::new(config, above.clone());
        link.start().expect("threads");
        let mut caller = Caller::enter(loopback_of(&link));
        let (mut served, _) = server.grant(7, LONG);
        let connection = match events.recv_timeout(SOON).expect("an event") {
            LinkEvent::Connected { connection, .. } => connection,
            other => panic!("{other:?}"),
        };
        caller.watch(&mut served, "/watched");
        Self {
            link,
            above,
            events,
            caller,
            served,
            connection,
        }
    }

    fn ask(&self, request: Request) -> Receiver<Vec<Told>> {
        let (sender, answers) = unbounded();
        let slot = Arc::new(Inbox(sender));
        let asked = self
            .link
            .submit(self.connection, &[request], Batching::Never, slot);
        asked.expect("open");
        answers
    }

    /// Everybody is told, the session is closed, and the threads end.
    fn ends(mut self, server: &FakeServer) {
        loop {
            match self.events.recv_timeout(SOON).expect("an event") {
                LinkEvent::Closed => break,
                LinkEvent::Suspended { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        let (mut grave, hello) = server.grant(7, LONG);
        assert_eq!(hello.session_id, 7);
        grave.close_session();
        let slot = Arc::new(Inbox(unbounded().0));
        let late = self
            .link
            .submit(self.connection, &[delete("/late")], Batching::Never, slot);
        late.expect_err("it is over");
        // A handle's watch ends, and not in silence.
        let told = self.caller.0.receive().expect("an event");
        assert_eq!(int(&told, 0), frame::XID_WATCH);
        assert_eq!(int(&told, 20), frame::EXPIRED);
        // The crate gets answers until it has said good-bye.
        self.caller.request(1, DELETE);
        assert_eq!(self.caller.reply(), (1, frame::ERR_SESSION_EXPIRED));
        self.caller.request(0, frame::OP_CLOSE);
        assert_eq!(self.caller.reply(), (0, 0));
        assert!(self.link.wait_ended(Instant::now() + SOON));
        self.link.close(SOON);
    }
}

fn delete(path: &str) -> Request {
    Request::Delete {
        path: path.into(),
        version: ANY_VERSION,
    }
}

fn lost(answers: &Receiver<Vec<Told>>) {
    let answers = answers.recv_timeout(SOON).expect("told");
    assert!(
        matches!(answers[..], [Err(NoReply::Lost(_))]),
        "{answers:?}"
    );
}

#[test]
fn a_panic_of_the_thread_that_reads_ends_the_session() {
    let server = FakeServer::start();
    let mut stage = Stage::new(&server);
    let (one, other) = (stage.ask(delete("/a")), stage.ask(delete("/b")));
    let first = stage.served.request();
    stage.served.request();
    // In one write: the answer is taken off before the event is told, and told after it.
    let event = frame::watch_event(1, b"/fault");
    let answer = frame::reply(first.0, 0);
    stage.served.0.send(&[event, answer.to_vec()].concat());
    lost(&one);
    lost(&other);
    stage.ends(&server);
}

#[test]
fn a_panic_at_an_answer_ends_the_session_and_tells_the_rest() {
    let server = FakeServer::start();
    let mut stage = Stage::new(&server);
    let list = Request::GetChildren {
        path: "/a".into(),
        watch: false,
    };
    let (one, other) = (stage.ask(list), stage.ask(delete("/b")));
    let (first, _) = stage.served.request();
    let (second, _) = stage.served.request();
    let names = reply_frame(first, 1, &0_i32.to_be_bytes());
    let done = frame::reply(second, 0);
    stage.served.0.send(&[names, done.to_vec()].concat());
    assert!(matches!(one.recv_timeout(SOON).expect("told")[..], [Ok(_)]));
    // It was done; but who should have been told first has panicked.
    lost(&other);
    stage.ends(&server);
}

#[test]
fn a_panic_of_the_thread_with_the_clock_ends_the_session() {
    let server = FakeServer::start();
    let stage = Stage::new(&server);
    let waiting = stage.ask(delete("/a"));
    let fault = &stage.above.on_clock;
    fault.store(true, std::sync::atomic::Ordering::SeqCst);
    stage.link.look_soon();
    lost(&waiting);
    stage.ends(&server);
}
