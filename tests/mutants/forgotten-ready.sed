# rule: what one look has shown of `ready` counts, though the list beside it was refused
# file: src/global_queue/rendezvous.rs
# sight: cargo test --quiet --all-features --test it a_member_whose_first_look
s|^            self.counted = Some(own);||
