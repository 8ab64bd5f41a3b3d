# rule: what a handle of the crate asks leaves room for requests of locks
# file: src/link/core/from_handle.rs
# sight: cargo test --quiet --lib what_a_handle_asks_leaves_room_for_requests_of_locks
s/if self.kept_bytes() + shape.bytes > MOST_OF_HANDLES {/if self.kept_bytes() + shape.bytes > 16 * MOST_OF_HANDLES {/
