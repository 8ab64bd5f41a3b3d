# rule: what a deposed leader answers proves nothing about the quorum
# file: src/link/core/chain.rs
# sight: cargo test --quiet --lib link::core::chain
s|proven: (request.kind == Kind::Write)|proven: (request.kind != Kind::Read)|
