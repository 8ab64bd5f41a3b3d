# rule: a run's end is written only while its lock is ours, and only into the record that it read
# file: src/recipe/record_node.rs
# sight: ZKLOCK_TEST_SERVER=embedded cargo test --test it recipes::once_per
s/Some(version) => transaction.set(&self.path, text, Some(version)),/Some(_) => transaction.put(\&self.path, text),/
