# rule: what a handle of the crate watches is left again after a break
# file: src/link/connect.rs
# sight: cargo test --quiet --all-features --test it watches_live_through_a_break
s/state.core.leave_again(guest.id, watches, now)/state.core.leave_again(guest.id, \&watches[..0], now)/
