# rule: what a follower answers by itself proves nothing about its leader
# file: src/link/core/chain.rs
# sight: cargo test --quiet --lib link::core::chain
s|if request.kind == Kind::Read {|if false {|
