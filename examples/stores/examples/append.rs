//! Appends a line to a document in PostgreSQL, under a lock, and never late.
//!
//! `ZK_CONNECT=zk1,zk2,zk3 cargo run -p fenced-stores --example append -- "host=db user=batch" "one more line"`

use std::error::Error;

use fenced_stores::postgresql::{TABLE, take_over, write};
use zklock::{Client, Mutex};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(database), Some(line)) = (arguments.next(), arguments.next()) else {
        return Err("usage: append DATABASE LINE".into());
    };
    let mut database = postgres::Client::connect(&database, postgres::NoTls)?;
    database.batch_execute(TABLE)?;

    let client = Client::from_env()?;
    let lock = Mutex::new(&client, "/locks/plan")?;
    let guard = lock.lock()?;
    let token = guard.fencing_token()?;

    // From now on nothing of an earlier holder is taken.
    let before = take_over(&mut database, "plan", token)?;
    // Takes as long as it takes.
    let after = before + &line + "\n";
    // Or is refused.
    write(&mut database, "plan", &after, token)?;

    guard.unlock()?;
    print!("{after}");
    Ok(())
}
