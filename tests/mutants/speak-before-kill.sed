# rule: nothing is written before a kill
# file: cli/src/run/course.rs
# sight: cargo test --quiet -p zklock-cli --test it a_reader_who_does_not_read
s|Action::Kill => self.job.kill(),|Action::Kill => { eprintln!("killing"); self.job.kill() }|
