//! PostgreSQL, for tables with many writers: a trigger, which no statement passes without a token.
//!
//! The tokens have a table of their own, with one row for each lock, so the guarded tables stay as they are. A
//! transaction begins by [`take_over`]. The trigger refuses every statement of a transaction that did not, among them
//! those of programs that know nothing of the lock.
//!
//! The row of the token is locked until the transaction ends. So a later holder waits for a transaction that is under
//! way, and one that is stopped in the middle of it would keep everybody waiting: [`connect`] has the server end such a
//! session. A single statement, as in [`postgresql`](crate::postgresql), has no such middle.
//!
//! Superusers and the owner of a table can switch its triggers off, and replicas do not run them. Let the programs be
//! other roles, with the right to `EXECUTE` the functions and none on `fences` (the functions are `SECURITY DEFINER`).

use std::time::Duration;

use postgres::{Client, Error, NoTls, Transaction};
use zklock::FencingToken;

use crate::{WriteError, bigint};

/// To be run once, by the owner of the tables. `orders` stands for a table of yours, and `'orders'` names its fence: one
/// for each lock, in lower case letters. Tables that share a lock share a fence.
pub const FENCE: &str = "
CREATE TABLE fences (
    name  text PRIMARY KEY,
    token bigint NOT NULL
);

-- Keeps the greater token. The row is ours until the transaction ends.
CREATE FUNCTION raise_fence(fence text, by_token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO fences (name, token) VALUES (fence, by_token)
    ON CONFLICT (name) DO UPDATE SET token = EXCLUDED.token
        WHERE fences.token <= EXCLUDED.token;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'a later holder of the lock of % has been here', fence
            USING ERRCODE = 'ZK001';
    END IF;
END $$;

-- The first statement of every transaction that writes. Later statements see all that was committed before it.
CREATE FUNCTION take_over(fence text, by_token bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM raise_fence(fence, by_token);
    PERFORM set_config('fence.' || fence, by_token::text, true);
END $$;

-- Asks again: the setting could have been made without `take_over`.
CREATE FUNCTION refuse_late_writes() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    by_token bigint := nullif(current_setting('fence.' || TG_ARGV[0], true), '');
BEGIN
    IF by_token IS NULL THEN
        RAISE EXCEPTION 'begin with: SELECT take_over(''%'', token)', TG_ARGV[0]
            USING ERRCODE = 'ZK002';
    END IF;
    PERFORM raise_fence(TG_ARGV[0], by_token);
    RETURN NULL;
END $$;

CREATE TRIGGER fenced BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON orders
FOR EACH STATEMENT EXECUTE FUNCTION refuse_late_writes('orders');
";

/// The SQLSTATE of a refusal.
pub const LATE: &str = "ZK001";
/// The SQLSTATE of a write without a token.
pub const NO_TOKEN: &str = "ZK002";

/// Connects, and has the server end this session when it is silent for so long within a transaction. The session
/// timeout of the lock is a good length: a holder that is stopped for longer has lost its lock.
///
/// # Errors
/// Errors of the database.
pub fn connect(servers: &str, longest_pause: Duration) -> Result<Client, Error> {
    let mut client = Client::connect(servers, NoTls)?;
    client.batch_execute(&format!(
        "SET idle_in_transaction_session_timeout = {}",
        longest_pause.as_millis()
    ))?;
    Ok(client)
}

/// Begins a transaction in the name of a lock's holder.
///
/// # Errors
/// [`WriteError::Late`]; errors of the database.
pub fn take_over<'c>(
    client: &'c mut Client,
    fence: &str,
    token: FencingToken,
) -> Result<Transaction<'c>, WriteError<Error>> {
    let mut transaction = client.transaction()?;
    transaction
        .execute("SELECT take_over($1, $2)", &[&fence, &bigint(token)])
        .map_err(late_or_not)?;
    Ok(transaction)
}

/// What an error of any statement says.
pub fn late_or_not(error: Error) -> WriteError<Error> {
    match error.code() {
        Some(state) if state.code() == LATE => WriteError::Late,
        _ => WriteError::Store(error),
    }
}
