# rule: what a handle of the crate watches is not taken off the server for a waiter who gives up
# file: src/session/zk.rs
# sight: cargo test --quiet --all-features --test it a_watch_on_the_node_of_a_waiter_is_told_to_both
s|^        Some(GuestWatch::on(&session, connection, path, kind, taken_off))|        let _ = (path, kind, connection, taken_off, GuestWatch::on); None|
