//! How a waiter comes to a contact, and goes on over broken connections and lost sessions.

use std::time::Instant;

use super::backend::NotNow;
use super::call_error::{CallError, Step};
use super::contact::Contact;
use super::phase::{Connection, NoContact};
use super::waiter::Waiter;
use crate::error::{Error, Result};
use crate::sync;

impl Waiter<'_> {
    /// The connection that is open now, if one is.
    pub(crate) fn contact_now(&self) -> Step<Contact<'_>> {
        let connection = self.session().open_connection();
        let connection = connection.map_err(CallError::NotSent)?;
        Ok(Contact::of_waiter(self, connection))
    }

    /// The open connection, once its number is greater than `after`.
    ///
    /// A call that failed on connection `after` must wait for the next one: the calls in flight are
    /// answered before the break is reported, so for a moment the old one still seems open.
    pub(crate) fn contact(&self, after: u64) -> Result<Contact<'_>> {
        loop {
            self.limits().check()?;
            self.check_condition()?;
            let give_up = match self.session().open_connection() {
                Ok(connection) if connection.number > after => return Ok(self.pin(connection)),
                Ok(_) => None,
                Err(NoContact::Disconnected) => self.session().when_to_give_up(self.began())?,
                Err(why) => return Err(why.into_error(self.session().target())),
            };
            if give_up.is_some_and(|give_up| give_up <= sync::now()) {
                return Err(self.session().gave_up());
            }
            self.sleep(give_up)?;
        }
    }

    fn pin(&self, connection: Connection) -> Contact<'_> {
        Contact::of_waiter(self, connection)
    }

    /// Repeats a step until it has a result, over broken connections and lost sessions, and with
    /// pauses while a server refuses it for now. Each time it gets the connection that is open when
    /// it begins. Errors name `path`.
    pub(crate) fn retry<T>(
        &self,
        path: &str,
        mut step: impl FnMut(&Contact<'_>) -> Step<Option<T>>,
    ) -> Result<T> {
        let (mut failed_on, mut times) = (0, 0);
        let mut put_off = PutOff::default();
        loop {
            let contact = self
                .contact(failed_on)
                .map_err(|error| error.context(path))?;
            match step(&contact) {
                Ok(Some(result)) => return Ok(result),
                Ok(None) => put_off = PutOff::default(),
                Err(CallError::NotNow(why)) => {
                    self.pause(&mut put_off, path, contact.number(), &why)?;
                }
                Err(error) => {
                    error.unless_retryable(self.session().target(), path)?;
                    failed_on = contact.number();
                    times += 1;
                    self.session().observation().retrying(times);
                }
            }
        }
    }

    /// Waits before something is asked again that was refused for now on this connection, unless
    /// that ends before. An error once it has been refused for as long as one may be without contact.
    fn pause(&self, put_off: &mut PutOff, path: &str, connection: u64, why: &NotNow) -> Result<()> {
        let session = self.session();
        let now = sync::now();
        if put_off.connection != connection {
            // While there was no contact nobody refused anything, and that has a limit of its own.
            (put_off.connection, put_off.since) = (connection, None);
        }
        let since = *put_off.since.get_or_insert(now);
        let limit = self.began().and(session.retry.give_up_after);
        if limit.is_some_and(|limit| now.saturating_duration_since(since) >= limit) {
            return Err(Error::not_now(format!("{path}: {why}")));
        }
        let until = now.checked_add(session.retry.pause(put_off.times));
        put_off.times += 1;
        loop {
            let in_bounds = self.limits().check().and_then(|()| self.check_condition());
            in_bounds.map_err(|error| error.context(path))?;
            // In a model, time is an event like any other.
            let is_over = cfg!(shuttle) || until.is_some_and(|until| until <= sync::now());
            if is_over || session.connection() != connection {
                return Ok(());
            }
            self.sleep(until).map_err(|error| error.context(path))?;
        }
    }
}

/// How often in a row something was refused for now, and since when on this connection.
#[derive(Default)]
struct PutOff {
    connection: u64,
    since: Option<Instant>,
    times: u32,
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::session::ConnectionState;
    use crate::session::RetryPolicy;
    use crate::session::phase::SessionPhase;
    use crate::session::scripted::{Stage, stage};
    use crate::wait::limits::WaitLimits;

    /// One refusal, a long time without contact, and one refusal on the next connection were an error
    /// as if the servers had refused it all the time.
    #[test]
    fn the_time_without_contact_is_no_time_of_refusals() {
        let limit = Duration::from_secs(1);
        let policy = RetryPolicy::new().give_up_after(limit);
        let Stage { session, .. } = stage(policy, |_| unreachable!("nothing is asked"));
        let limits = WaitLimits::none();
        let waiter = Waiter::new(&session, &limits);
        let refused = |connection| {
            let mut put_off = PutOff {
                connection: 1,
                since: Instant::now().checked_sub(10 * limit),
                times: 1,
            };
            waiter.pause(&mut put_off, "/a", connection, &NotNow::Throttled)
        };
        refused(2).expect("it was asked once there");
        let error = refused(1).expect_err("for longer than the limit");
        assert!(error.to_string().contains("overloaded"), "{error}");
    }

    /// A process that was stopped for longer than its session lives. A thread that had waited behind
    /// others of its process for longer than `give_up_after` then came here before the thread with
    /// the clock did, and was told of an outage that had not been.
    #[test]
    fn a_waiter_that_finds_the_lease_over_waits_for_the_next_session() {
        let limit = Duration::from_secs(1);
        let policy = RetryPolicy::new().give_up_after(limit);
        let Stage { session, epoch, .. } = stage(policy, |_| unreachable!("nothing is asked"));
        let began = Instant::now();
        let long_ago = began.checked_sub(10 * limit).expect("the machine is up");
        let mut phase = SessionPhase::new(long_ago);
        let connection = session.open_connection().expect("open");
        assert!(phase.connected(connection));
        session.state.lock().phase = phase;
        epoch.lease().seal();
        let limits = WaitLimits::none();
        let waiter = Waiter::new(&session, &limits).since(long_ago);
        let gave_up = waiter.contact(0).err().expect("no session comes");
        assert!(gave_up.is_connection_loss(), "{gave_up}");
        assert!(began.elapsed() >= limit, "{:?}", began.elapsed());
        assert_eq!(session.state(), ConnectionState::Connecting);
    }
}
