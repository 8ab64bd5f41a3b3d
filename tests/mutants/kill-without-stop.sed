# rule: whoever is to be killed is stopped first, so that nobody acts on the death of another
# file: cli/src/run/job/walk.rs
# sight: cargo test --quiet -p zklock-cli --test it who_waits_for_the_death_of_another
s|^                let _ = process.send(Signal::STOP);||
