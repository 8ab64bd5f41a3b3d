# rule: an event of a watch that locks and a handle of the crate share is told to the handle as well
# file: src/link/core/handles.rs
# sight: cargo test --quiet --all-features --test it a_watch_on_the_node_of_a_waiter_is_told_to_both
s/^        if fired {/        if fired \&\& over.is_empty() {/
