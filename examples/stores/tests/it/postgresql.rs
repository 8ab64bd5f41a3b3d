//! PostgreSQL, by one statement and by a trigger.

use fenced_stores::{WriteError, postgresql, trigger};
use postgres::{Client, NoTls};
use testbed::process;

use crate::holder::T;
use crate::servers::new_database;
use crate::stores::{NAME, Place, Refused};
use crate::story;

/// A database with the documents in it.
fn with_documents() -> String {
    let database = new_database();
    let mut client = Client::connect(&database, NoTls).expect("it serves");
    client
        .batch_execute(postgresql::TABLE)
        .expect("a new table");
    database
}

/// A database with a guarded table in it.
fn with_orders() -> String {
    let database = new_database();
    let mut client = Client::connect(&database, NoTls).expect("it serves");
    let table = "CREATE TABLE orders (name text PRIMARY KEY, body text NOT NULL)";
    client.batch_execute(table).expect("a new table");
    client.batch_execute(trigger::FENCE).expect("a new fence");
    database
}

#[test]
fn late_writes_are_refused_by_a_statement() {
    let place = Place::Postgresql(with_documents());
    story::late_writes_are_refused("/locks/statement", &place);
}

#[test]
fn without_the_statement_a_late_write_wins() {
    let place = Place::Postgresql(with_documents());
    story::without_the_guard_a_late_write_wins("/locks/no-statement", &place);
}

/// The token is in the row. So a document that is not wanted any more keeps it.
#[test]
fn a_removed_document_is_not_made_again_by_a_late_write() {
    let mut client = Client::connect(&with_documents(), NoTls).expect("it serves");
    let body = |client: &mut Client, token: u64| {
        postgresql::take_over(client, NAME, token.into()).expect("not late")
    };
    postgresql::write(&mut client, NAME, "kept", 7.into()).expect("the first");
    let late = postgresql::remove(&mut client, NAME, 6.into());
    assert!(matches!(late, Err(WriteError::Late)), "{late:?}");
    assert_eq!(body(&mut client, 7), "kept");
    postgresql::remove(&mut client, NAME, 8.into()).expect("not late");
    let late = postgresql::write(&mut client, NAME, "late", 7.into());
    assert!(matches!(late, Err(WriteError::Late)), "{late:?}");
    assert_eq!(body(&mut client, 8), "");
}

#[test]
fn late_writes_are_refused_by_a_trigger() {
    let place = Place::Trigger(with_orders());
    story::late_writes_are_refused("/locks/trigger", &place);
}

#[test]
fn without_the_trigger_a_late_write_wins() {
    let place = Place::Trigger(with_orders());
    story::without_the_guard_a_late_write_wins("/locks/no-trigger", &place);
}

/// Programs that know nothing of the lock do not write beside it, in whatever way.
#[test]
fn nothing_is_written_without_a_token() {
    let mut client = Client::connect(&with_orders(), NoTls).expect("it serves");
    let mut refused = |statement: &str| {
        let error = client.batch_execute(statement).expect_err("no token");
        error.code().expect("the server's").code().to_owned()
    };
    for statement in [
        "INSERT INTO orders VALUES ('plan', 'stray')",
        "UPDATE orders SET body = 'stray'",
        "DELETE FROM orders",
        "TRUNCATE orders",
        "COPY orders FROM PROGRAM 'echo stray'",
    ] {
        assert_eq!(refused(statement), trigger::NO_TOKEN, "{statement}");
    }
    // What a connection of a pool has kept from an earlier transaction is no token.
    let mut earlier = trigger::take_over(&mut client, "orders", 7.into()).expect("the first");
    let inserted = earlier.execute("INSERT INTO orders VALUES ('plan', 'kept')", &[]);
    inserted.expect("not late");
    earlier.commit().expect("not late");
    let stray = client.execute("UPDATE orders SET body = 'stray'", &[]);
    let state = stray
        .expect_err("no token")
        .code()
        .map(|state| state.code().to_owned());
    assert_eq!(state.as_deref(), Some(trigger::NO_TOKEN));
    // Nor is a setting that somebody makes by hand.
    let by_hand = "BEGIN; SET LOCAL fence.orders = 6; UPDATE orders SET body = 'stray'";
    let error = client.batch_execute(by_hand).expect_err("late");
    assert!(matches!(trigger::late_or_not(error), WriteError::Late));
}

/// Its row of the fence is locked, so the next holder would wait as long as it is stopped.
#[test]
fn a_holder_that_is_stopped_within_a_transaction_is_ended_by_the_server() {
    let place = Place::Trigger(with_orders());
    let (mut first, next, mut store) = story::stopped_in_the_middle("/locks/within", &place);
    // Waits until the server has ended the session of the first.
    assert_eq!(store.take_over(&next).as_deref(), Ok("first"));
    assert_eq!(store.write(&next, "second"), Ok(()));
    process::cont(first.pid());
    let answer = first.say("go on");
    assert!(answer.starts_with("failed"), "{answer}");
    assert_eq!(store.read(), "second");
    next.guard.unlock().expect("held all the time");
}

/// Without a bound the next one waits.
#[test]
fn without_a_bound_a_stopped_transaction_keeps_everybody_waiting() {
    let database = with_orders();
    let mut first = Client::connect(&database, NoTls).expect("it serves");
    let mut next = Client::connect(&database, NoTls).expect("it serves");
    let inside = trigger::take_over(&mut first, "orders", 7.into()).expect("the first");
    let bound = format!("SET lock_timeout = {}", T.as_millis() / 10);
    next.batch_execute(&bound).expect("a setting");
    let waited = trigger::take_over(&mut next, "orders", 8.into()).map(drop);
    let waited: Result<(), Refused> = waited.map_err(Into::into);
    assert!(
        matches!(&waited, Err(Refused::Failed(why)) if why.contains("55P03")),
        "{waited:?}"
    );
    inside.rollback().expect("it serves");
    trigger::take_over(&mut next, "orders", 8.into())
        .expect("nobody is there")
        .commit()
        .expect("not late");
}
