//! [`Trap`] and [`Hold`]: faults that wait for their request.

use std::sync::Arc;
use std::time::Duration;

use crate::server::Desk;
use crate::trouble::RuleId;

/// A fault in waiting, as [`Server::lose_request`](crate::Server::lose_request) and its like set it.
/// Dropping this changes nothing.
#[derive(Clone, Debug)]
pub struct Trap {
    desk: Arc<Desk>,
    rule: RuleId,
}

/// A request or reply that is to be held back, as
/// [`Server::hold_request`](crate::Server::hold_request) and
/// [`Server::hold_reply`](crate::Server::hold_reply) ask for. Dropping this releases nothing.
#[derive(Clone, Debug)]
pub struct Hold(pub(crate) Trap);

impl Trap {
    pub(crate) fn new(desk: Arc<Desk>, rule: RuleId) -> Self {
        Self { desk, rule }
    }

    /// How often the fault has struck.
    #[must_use]
    pub fn times_sprung(&self) -> u64 {
        let rule = self.rule;
        self.desk
            .tell(move |driver| driver.machine().times_struck(rule))
    }

    /// Waits until the fault has struck.
    ///
    /// # Panics
    /// If it does not within the given time.
    #[track_caller]
    pub fn wait_until_sprung(&self, within: Duration) {
        let sprung = self.desk.wait_until(within, || self.times_sprung() > 0);
        assert!(sprung, "no matching request came within {within:?}");
    }

    /// Takes the fault away. What it did stays done; what it holds goes on.
    pub fn disarm(&self) {
        let rule = self.rule;
        self.desk.tell(move |driver| {
            let now = driver.now();
            driver.order(|machine| machine.remove_rule(rule, now));
        });
    }
}

impl Hold {
    /// Waits until the request or reply has come and is held back.
    ///
    /// # Panics
    /// If it does not come within the given time.
    #[track_caller]
    pub fn wait_until_held(&self, within: Duration) {
        self.0.wait_until_sprung(within);
    }

    /// Whether it has come.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.times_sprung() > 0
    }

    /// Lets it, and all behind it, go on. One that has not come yet will not be held.
    pub fn release(&self) {
        self.0.disarm();
    }
}
