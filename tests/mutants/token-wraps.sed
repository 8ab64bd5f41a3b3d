# rule: a fencing token never goes backwards
# file: src/znode/fencing.rs
# sight: torture mutex 3
s|u64::try_from(czxid)|u64::try_from(czxid % 97)|
