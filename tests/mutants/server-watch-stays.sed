# rule: in the server for tests, a one-shot watch tells once
# file: test-server/src/core/watches.rs
# sight: cargo test --quiet -p zklock-test --lib a_watch_is_spent_once
s|^                spent.push(watcher);|                told.insert(watcher);|
