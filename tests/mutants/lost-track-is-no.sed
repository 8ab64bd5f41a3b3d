# rule: a server that cannot say what became of a request is left
# file: protocol/src/error_code.rs
# sight: cargo test --quiet --lib a_server_that_cannot_say
/fn is_outcome_unknown/,/^    }/s/^                | Self::OPERATION_TIMEOUT$//
