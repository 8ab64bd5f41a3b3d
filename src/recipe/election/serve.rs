//! To stand again and again: the loop of a process that is to lead whenever it can.

use std::ops::ControlFlow;
use std::time::Duration;

use super::Election;
use super::leadership::Leadership;
use crate::error::Result;
use crate::session::observe::say;
use crate::session::{RetryPolicy, Waiter};
use crate::sync;
use crate::wait::acquire_options::AcquireOptions;
use crate::wait::cancel::CancelToken;
use crate::wait::limits::WaitLimits;

/// The shortest limit of a pause after a campaign that failed, whatever the builder says: one that
/// fails at once would be a loop without a pause.
const AFTER_A_FAILURE: Duration = Duration::from_millis(100);

/// The longest pause after many that failed in a row.
const LONGEST: Duration = Duration::from_secs(30);

impl Election {
    /// Stands for leader again and again, and calls `lead` each time this process leads, until
    /// `stop` is cancelled or `lead` breaks. Blocks the calling thread, on which `lead` runs.
    ///
    /// `lead` returns when the leader is to step down, and once one of its workers or views says
    /// that it is lost.
    /// Then, in this order: [workers](Leadership::worker) and [views](Leadership::view) are told,
    /// workers are waited for, the next one leads; and after a
    /// [pause](crate::ElectionBuilder::pause) this process stands again, at the end of the queue. With
    /// [`ControlFlow::Break`] it does not stand again, and the value is what `serve` returns.
    ///
    /// When `stop` is cancelled, a campaign and a pause end at once. During a leadership its workers
    /// and views are told at once, while the node stands; then `lead` is waited for. So `lead` should
    /// go by a worker, as it does here, and not by the `state` and the `lost` of the [`Leadership`]
    /// itself: these tell of a loss, and to be stopped is none. A `lead` that waits for them alone
    /// goes on after `stop` is cancelled, and so does `serve`.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// use std::ops::ControlFlow;
    /// use std::time::Duration;
    /// use zklock::{CancelToken, Election, Leadership};
    ///
    /// let stop = CancelToken::new(); // cancelled by a handler of signals, say
    /// # let from_outside = stop.clone();
    /// let election = Election::new(&client, "/leaders/indexer")?;
    /// election.serve(&stop, |leadership: &Leadership| {
    ///     let worker = leadership.worker();
    ///     while worker.lost().recv_timeout(Duration::from_millis(10)).is_err() {
    ///         if worker.is_held() {
    ///             println!("one step of the leader's work"); // not while there is no contact
    ///         }
    /// #       from_outside.cancel();
    ///     }
    ///     ControlFlow::<()>::Continue(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A campaign that fails for want of a connection is repeated as soon as there is one, and one
    /// that the servers refuse for now after a pause that doubles up to 30 s, for as long as it takes;
    /// the client's log says why. If `lead` panics, the panic goes on and the leadership is given back.
    ///
    /// # Errors
    /// Those that no pause mends: all but [`is_connection_loss`](crate::Error::is_connection_loss) and
    /// [`is_session_lost`](crate::Error::is_session_lost), such as
    /// [`is_closed`](crate::Error::is_closed), which ends a pause as well,
    /// [`is_forked`](crate::Error::is_forked), [`is_no_auth`](crate::Error::is_no_auth) and
    /// [`is_invalid`](crate::Error::is_invalid). To be cancelled is none: that is `Ok(None)`.
    pub fn serve<T>(
        &self,
        stop: &CancelToken,
        mut lead: impl FnMut(&Leadership) -> ControlFlow<T>,
    ) -> Result<Option<T>> {
        let mut failed = 0;
        loop {
            let options = AcquireOptions::new().cancel(stop);
            let rested = match self.campaign_with(options) {
                Ok(leadership) => {
                    failed = 0;
                    if let ControlFlow::Break(value) = self.lead(stop, leadership, &mut lead) {
                        return Ok(Some(value));
                    }
                    self.rest(stop, self.pause)
                }
                Err(error) if error.is_connection_loss() || error.is_session_lost() => {
                    say!(self.session(), Warn, "not elected, standing again: {error}");
                    self.recover(stop, &mut failed)
                }
                Err(error) => Err(error),
            };
            match rested {
                Ok(()) => {}
                Err(error) if error.is_cancelled() => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// One term.
    fn lead<T>(
        &self,
        stop: &CancelToken,
        leadership: Leadership,
        lead: &mut impl FnMut(&Leadership) -> ControlFlow<T>,
    ) -> ControlFlow<T> {
        let retires = stop.attach(leadership.own_hold());
        let then = lead(&leadership);
        drop(retires);
        // In any case it is over, and a loss has been told.
        if let Err(error) = leadership.resign() {
            say!(self.session(), Debug, "the end of a leadership: {error}");
        }
        then
    }

    /// Waits for a connection if there is none, however long that takes, and otherwise for a while.
    fn recover(&self, stop: &CancelToken, failed: &mut u32) -> Result<()> {
        let limits = until_cancelled(stop);
        let mut waiter = Waiter::new(self.session(), &limits);
        waiter.never_give_up();
        if waiter.contact_now().is_err() {
            *failed = 0;
            return waiter.contact(0).map(drop);
        }
        drop(waiter);
        let pause = self.pause_after(*failed);
        *failed = failed.saturating_add(1);
        self.rest(stop, pause)
    }

    /// Waits until `pause` is over. An error as soon as `stop` is cancelled or the client closed.
    fn rest(&self, stop: &CancelToken, pause: Duration) -> Result<()> {
        let limits = until_cancelled(stop);
        // Closing wakes it, as every change of the connection does.
        let waiter = Waiter::new(self.session(), &limits);
        // Beyond the clock's range is never.
        let until = sync::now().checked_add(pause);
        loop {
            limits.check()?;
            self.session().refuse_closed()?;
            if until.is_some_and(|until| until <= sync::now()) {
                return Ok(());
            }
            waiter.sleep(until)?;
        }
    }

    fn pause_after(&self, failed: u32) -> Duration {
        let first = self.pause.max(AFTER_A_FAILURE);
        let pauses = RetryPolicy::new().initial(first).max(LONGEST.max(first));
        pauses.pause(failed)
    }
}

fn until_cancelled(stop: &CancelToken) -> WaitLimits {
    WaitLimits {
        cancel: Some(stop.clone()),
        ..WaitLimits::none()
    }
}
