# rule: the supervisor kills when the watchdog dies
# file: cli/src/run/job/guarded.rs
# sight: cargo test --quiet -p zklock-cli --test it a_job_without_a_watchdog
s|let _ = self.to_events.send(Event::Unguarded);||
