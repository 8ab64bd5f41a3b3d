# rule: what an overloaded server refuses to a packet is not asked again at once
# file: src/link/core/batch.rs
# sight: cargo test --quiet --lib a_busy_servers_answer
s/^    error.is_about_a_request() && .*/    pack != Pack::Never || error == ErrorCode::THROTTLED_OP/
