//! How a waiter comes to a contact, and goes on over broken connections and lost sessions.

use super::call_error::{CallError, Step};
use super::contact::Contact;
use super::phase::{Connection, NoContact};
use super::waiter::Waiter;
use crate::error::Result;
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
            self.bound().check()?;
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

    /// Repeats a step until it has a result, over broken connections and lost sessions. Each time
    /// it gets the connection that is open when it begins. Errors name `path`.
    pub(crate) fn persist<T>(
        &self,
        path: &str,
        mut step: impl FnMut(&Contact<'_>) -> Step<Option<T>>,
    ) -> Result<T> {
        let (mut failed_on, mut times) = (0, 0);
        loop {
            let contact = self
                .contact(failed_on)
                .map_err(|error| error.context(path))?;
            match step(&contact) {
                Ok(Some(result)) => return Ok(result),
                Ok(None) => {}
                Err(error) => {
                    error.unless_retryable(self.session().target(), path)?;
                    failed_on = contact.number();
                    times += 1;
                    self.session().observation().retrying(times);
                }
            }
        }
    }
}
