//! Redis.

use fenced_stores::{WriteError, redis};

use crate::servers;
use crate::stores::Place;
use crate::story;

/// Databases of one server have numbers.
fn database(number: u8) -> Place {
    Place::Redis(format!("{}{number}", servers::redis()))
}

#[test]
fn late_writes_are_refused() {
    story::late_writes_are_refused("/locks/redis", &database(1));
}

#[test]
fn without_the_guard_a_late_write_wins() {
    story::without_the_guard_a_late_write_wins("/locks/no-redis", &database(2));
}

/// As text `9` comes after `10`; as a number of Lua 2^53 + 1 is 2^53.
#[test]
fn tokens_are_compared_as_the_numbers_that_they_are() {
    let client = ::redis::Client::open(servers::redis()).expect("well-formed");
    let mut connection = client.get_connection().expect("it serves");
    for (i, (earlier, later)) in [(9, 10), (1 << 53, (1 << 53) + 1)].into_iter().enumerate() {
        let key = format!("compared-{i}");
        let mut write = |token: u64| redis::write(&mut connection, &key, "body", token.into());
        write(earlier).expect("the first");
        write(earlier).expect("the same");
        write(later).expect("later");
        let late = write(earlier);
        assert!(matches!(late, Err(WriteError::Late)), "{earlier}: {late:?}");
        write(later).expect("still the latest");
    }
}
