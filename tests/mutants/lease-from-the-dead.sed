# rule: a lease that was sealed is never extended
# file: src/link/core/lease.rs
# sight: cargo test --quiet --lib link::core::lease
s|while current != SEALED \&\& current < to.nanos()|while current < to.nanos()|
