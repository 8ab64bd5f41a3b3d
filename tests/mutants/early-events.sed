# rule: an event that overtakes the answer to its read is news
# file: src/session/watch_state.rs
# sight: model watches
s/find(|(number, _)| \*number > after)/find(|_| false)/
