# rule: no terminal stops who supervises
# file: cli/src/run/signals.rs
# sight: cargo test --quiet -p zklock-cli --test it a_reader_in_the_background
/^pub(crate) fn block_all/,/^}/s|^    set_of(OF_TERMINALS.into_iter()).thread_block()?;||
