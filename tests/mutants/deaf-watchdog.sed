# rule: the watchdog kills at the deadline that it was told
# file: cli/src/run/job/watchdog.rs
# sight: cargo test --quiet -p zklock-cli --test it a_supervisor_that_is_stopped
/fn look_at_the_clock/,/^    }/s|is_ok()|is_ok() \&\& self.survivors.len() > 1_000_000|
