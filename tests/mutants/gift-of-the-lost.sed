# rule: a lock that is lost is not handed to another thread
# file: src/local_queue/release.rs
# sight: cargo test --quiet --test it a_lost_lock_is_not_handed_over
s/ || !tenure_use.tenure.is_held()//
