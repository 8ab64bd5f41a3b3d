# rule: in the server for tests, a multi is done whole or not at all
# file: test-server/src/core/transactions.rs
# sight: cargo test --quiet -p zklock-test --lib a_multi_is_done_whole
s|^                return Err(Refused::Each(codes));|                drop(codes); return Ok(prepared);|
