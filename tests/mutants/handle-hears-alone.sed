# rule: an event that a handle of the crate hears is told to the locks as well
# file: src/link/reading.rs
# sight: cargo test --quiet --all-features --test it a_watch_on_the_node_of_a_waiter_is_told_to_both
s|^                wire.tell_event(event, &path, number);|                if over.is_empty() { wire.tell_event(event, \&path, number); }|
