# rule: a server that grants another session at a resume is believed that the old one is over
# file: src/link/core/opening.rs
# sight: cargo test --quiet --lib link::tests
s|if response.session_id != session_id {|if response.session_id != session_id \&\& response.session_id == 0 {|
