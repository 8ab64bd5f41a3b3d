# rule: a node that a server will not remove for now is asked for again
# file: src/session/sweep.rs
# sight: cargo test --quiet --all-features --test it a_withdrawal_that_is_refused
s|^                Err(No::Yet(why)) => swept.keep(left, why),|                Err(No::Yet(_)) => swept.removed += 1,|
