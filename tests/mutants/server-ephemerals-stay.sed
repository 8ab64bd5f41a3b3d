# rule: in the server for tests, ephemeral nodes go with their session
# file: test-server/src/core/mod.rs
# sight: cargo test --quiet -p zklock-test --lib a_session_takes_its_nodes_with_it
s|^        for path in self.tree.ephemerals_of(session) {|        for path in self.tree.ephemerals_of(!session) {|
