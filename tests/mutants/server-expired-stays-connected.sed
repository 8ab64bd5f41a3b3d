# rule: in the server for tests, the end of a session ends its connection
# file: test-server/src/core/mod.rs
# sight: cargo test --quiet -p zklock-test --test it expiring_a_session_deletes_its_nodes
/pub(crate) fn expire(/,/^    }/s|self.close(connection);|let _ = connection;|
