# rule: a check of our own node that is refused for now is no reason to list again at once
# file: src/tenure/mod.rs
# sight: cargo test --quiet --all-features --test it a_check_that_is_refused
s|contact.stands(&new.nodes\[0\])? else|contact.stands(\&new.nodes[0]).ok().flatten() else|
