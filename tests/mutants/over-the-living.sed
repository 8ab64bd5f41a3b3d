# rule: the lock is kept for as long as somebody lives who cannot be killed
# file: cli/src/run/supervisor.rs
# sight: cargo test --quiet -p zklock-cli --test it the_lock_is_kept_over_those
s|^                if certainty == Certainty::Over {|                if true {|
