//! To stand again and again: the loop of a process that is to lead whenever it can.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Election;
use super::leadership::Leadership;
use crate::error::{Error, Result};
use crate::session::RetryPolicy;
use crate::session::observe::say;
use crate::wait::acquire_options::AcquireOptions;
use crate::wait::cancel::CancelToken;
use crate::wait::signal::{Signal, Wakes};

/// The shortest limit of a pause after a campaign that failed, whatever the builder says: one that
/// fails at once would be a loop without a pause.
const AFTER_A_FAILURE: Duration = Duration::from_millis(100);

/// The longest pause after many that failed in a row.
const LONGEST: Duration = Duration::from_secs(30);

impl Election {
    /// Stands for leader again and again, and calls `lead` each time this process leads, until
    /// `stop` is cancelled or `lead` breaks. Blocks the calling thread, on which `lead` runs.
    ///
    /// `lead` returns when the leader is to step down, and once it is [lost](Leadership::lost).
    /// Then, in this order: [workers](Leadership::worker) and [views](Leadership::view) are told,
    /// workers are waited for, the next one leads; and after a
    /// [pause](crate::ElectionBuilder::pause) this process stands again, at the end of the queue. With
    /// [`ControlFlow::Break`] it does not stand again, and the value is what `serve` returns.
    ///
    /// When `stop` is cancelled, a campaign and a pause end at once. During a leadership its workers
    /// and views are told at once, while the node stands; then `lead` is waited for. So `lead` should
    /// go by a worker, as it does here:
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
    /// A campaign that fails for want of a connection, or as the servers refuse it for now, is
    /// repeated after a pause that doubles up to 30 s, for as long as it takes; the client's log says
    /// why. If `lead` panics, the panic goes on and the leadership is given back.
    ///
    /// # Errors
    /// Those that no pause mends: [`is_closed`](Error::is_closed), [`is_forked`](Error::is_forked),
    /// [`is_no_auth`](Error::is_no_auth), [`is_invalid`](Error::is_invalid). To be cancelled is none:
    /// that is `Ok(None)`.
    pub fn serve<T>(
        &self,
        stop: &CancelToken,
        mut lead: impl FnMut(&Leadership) -> ControlFlow<T>,
    ) -> Result<Option<T>> {
        let mut failed = 0;
        loop {
            let options = AcquireOptions::new().cancel(stop);
            let pause = match self.campaign_with(options) {
                Ok(leadership) => {
                    failed = 0;
                    if let ControlFlow::Break(value) = self.lead(stop, leadership, &mut lead) {
                        return Ok(Some(value));
                    }
                    self.pause
                }
                Err(error) if error.is_cancelled() => return Ok(None),
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => {
                    let pause = self.pause_after(failed);
                    failed += 1;
                    say!(
                        self.session(),
                        Warn,
                        "not elected, standing again in {pause:?}: {error}"
                    );
                    pause
                }
            };
            if is_cancelled_within(stop, pause) {
                return Ok(None);
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

    fn pause_after(&self, failed: u32) -> Duration {
        let first = self.pause.max(AFTER_A_FAILURE);
        let pauses = RetryPolicy::new().initial(first).max(LONGEST.max(first));
        pauses.pause(failed)
    }
}

/// Whether it would fail again, whenever it is repeated.
fn is_final(error: &Error) -> bool {
    error.is_closed() || error.is_forked() || error.is_no_auth() || error.is_invalid()
}

/// Whether `stop` is cancelled before `pause` is over.
fn is_cancelled_within(stop: &CancelToken, pause: Duration) -> bool {
    let signal = Arc::new(Signal::new());
    let _attached = stop.attach(&signal);
    // Beyond the clock's range is never.
    let deadline = Instant::now().checked_add(pause);
    signal.wait(deadline).has(Wakes::CANCEL) || stop.is_cancelled()
}
