# rule: thousands of nodes left behind do not stand before the news that a lock is lost
# file: src/session/orphans.rs
# sight: cargo test --quiet --all-features --test it a_removal_is_told_though
s|^pub(super) const SLICE: usize = 64;|pub(super) const SLICE: usize = 6_400;|
