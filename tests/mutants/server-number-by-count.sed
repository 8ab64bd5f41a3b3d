# rule: in the server for tests, a sequential node's number is the count of all that were created there
# file: test-server/src/core/transactions.rs
# sight: cargo test --quiet -p zklock-test --lib numbers_of_sequential_nodes
s|path = format!("{path}{:010}", parent_record.cversion);|path = format!("{path}{:010}", parent_record.children);|
