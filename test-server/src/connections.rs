//! [`Connections`]: what can be done to one connection, or to all.

use std::time::Duration;

use crate::server::Desk;
use crate::trouble::{Regime, Whom};

/// One connection or all, to do harm to. What is done lasts until
/// [`heal`](crate::Server::heal), or until the connection ends.
#[derive(Clone, Copy, Debug)]
#[must_use = "does nothing by itself"]
pub struct Connections<'a> {
    desk: &'a Desk,
    whom: Whom,
}

impl<'a> Connections<'a> {
    pub(crate) fn new(desk: &'a Desk, whom: Whom) -> Self {
        Self { desk, whom }
    }

    /// Resets them; what is under way is lost. Sessions live on, and clients may connect again.
    pub fn cut(&self) {
        let whom = self.whom;
        self.desk.tell(move |driver| driver.cut(whom));
    }

    /// Neither side hears the other, and neither hears that a connection ends: a network that
    /// swallows everything, or a machine that is cut off. What is sent meanwhile arrives after
    /// [`heal`](Self::heal).
    ///
    /// # Examples
    /// A holder that is cut off is told before anybody else can have its lock:
    /// ```
    /// # use std::time::Duration;
    /// let server = zklock_test::Server::start()?;
    /// let short = Duration::from_secs(1);
    /// let client = zklock::Client::builder(&server.connect_string()).session_timeout(short).connect()?;
    /// let guard = zklock::Mutex::new(&client, "/locks/nightly")?.lock()?;
    /// server.connections().hold();
    /// assert!(guard.lost().recv_timeout(Duration::from_secs(10)).is_ok());
    /// assert_eq!(server.node("/locks/nightly").expect("the folder").children.len(), 1);
    /// # server.heal();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hold(&self) {
        self.change(|regime| (regime.deaf, regime.mute) = (true, true));
    }

    /// The server no longer hears them, but they hear the server.
    pub fn deafen(&self) {
        self.change(|regime| regime.deaf = true);
    }

    /// They no longer hear the server, but the server hears them, and does what it is asked.
    pub fn mute(&self) {
        self.change(|regime| regime.mute = true);
    }

    /// Lets everything that is sent from now on arrive so much later, in each direction: latency,
    /// not a limit to the rate. What is under way keeps its time.
    pub fn slow(&self, by: Duration) {
        self.change(move |regime| regime.delay = by);
    }

    /// Ends what the other verbs of this type have done. What was held back arrives now, in its
    /// order. What waits for single requests stays; see [`Server::heal`](crate::Server::heal).
    pub fn heal(&self) {
        let whom = self.whom;
        self.desk.tell(move |driver| {
            let now = driver.now();
            driver.order(|machine| machine.calm(whom, now));
        });
    }

    fn change(&self, change: impl Fn(&mut Regime) + Send + 'static) {
        let whom = self.whom;
        self.desk.tell(move |driver| {
            let now = driver.now();
            driver.order(|machine| machine.change(whom, now, change));
        });
    }
}
