# rule: the clock of a period is the servers', by a write of the holder
# file: src/recipe/record_node.rs
# sight: ZKLOCK_TEST_SERVER=embedded cargo test --test it recipes::once_per_clock
s/let written = Moment::from_millis(stat.mtime).ok_or_else/let written = Moment::of(std::time::SystemTime::now()).ok_or_else/
