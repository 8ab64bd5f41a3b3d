# rule: a lost lock is not entered again
# file: src/local_queue/acquire.rs
# sight: cargo test --quiet --test it a_lost_lock_is_not_entered_again
s|^            tenure_use.tenure.refuse_lost()?;$|            let _ = tenure_use;|
