# rule: a list that was to see a create that was undone is asked again with it
# file: src/link/core/batch.rs
# sight: cargo test --lib what_was_refused_because
s/self.groups\[group\].forget_reads();/let _ = group;/
