//! A ledger whose fence is inside ZooKeeper: read, decide, write. The transaction says that the lock
//! is ours, and the version that nobody else wrote in between, not even a lost attempt of our own.

use zklock::{Client, LockState, Mutex};

fn main() -> zklock::Result<()> {
    let servers = std::env::args().nth(1);
    let client = Client::connect(servers.as_deref().unwrap_or("localhost:2181"))?;
    let lock = Mutex::new(&client, "/locks/ledger")?;
    let guard = lock.lock()?;

    let before = client.read("/ledger/balance")?;
    let balance = match &before {
        Some((data, _)) => String::from_utf8_lossy(data).parse().unwrap_or(0),
        None => 0,
    };
    let number = before.as_ref().map_or(0, |(_, version)| version + 1);
    let entry = format!("/ledger/entries/{}-{number}", guard.fencing_token()?);
    let balance = (balance + 10).to_string();

    let booking = guard
        .transaction()
        .ensure("/ledger/entries")
        .create(&entry, "10");
    let booking = match before {
        Some((_, version)) => booking.set("/ledger/balance", balance.clone(), Some(version)),
        None => booking.create("/ledger/balance", balance.clone()),
    };
    match booking.commit() {
        Ok(_) => println!("booked: {balance}"),
        // Nothing was written; somebody else may hold the lock.
        Err(error) if error.is_lock_lost() => println!("not booked: {error}"),
        // The answer was lost. The entry has a name of its own, so it can be looked for.
        Err(error) if error.is_connection_loss() => {
            let booked = client.read(&entry)?.is_some();
            if booked || guard.state() != LockState::Lost {
                println!("booked: {booked}");
            } else {
                println!("lock again, and then look again");
            }
        }
        Err(error) => return Err(error),
    }
    Ok(())
}
