# rule: a fencing token never goes backwards
# file: src/znode/fencing.rs
# sight: torture mutex 3
s|u64::try_from(stat.czxid)|u64::try_from(stat.ephemeral_owner)|
