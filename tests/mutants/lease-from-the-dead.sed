# rule: a lease that was sealed is never extended
# file: src/link/lease.rs
# sight: cargo test --quiet --lib link::lease
s|while current != SEALED \&\& current < to.nanos()|while current < to.nanos()|
