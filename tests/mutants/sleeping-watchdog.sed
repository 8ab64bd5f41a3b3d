# rule: a watchdog that was stopped is continued
# file: cli/src/run/job/guarded.rs
# sight: cargo test --quiet -p zklock-cli --test it a_watchdog_that_is_stopped_is
s|let _ = kill_process(pid, Signal::CONT);||
