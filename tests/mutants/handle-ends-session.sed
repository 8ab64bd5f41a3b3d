# rule: the close of a handle of the crate ends the handle, and not the session
# file: src/link/from_crate.rs
# sight: cargo test --quiet --all-features --test it its_close_and_drop_end_the_handle_alone
s/opcode::CLOSE_SESSION | opcode::PING => Goes::Nowhere/opcode::PING => Goes::Nowhere/
