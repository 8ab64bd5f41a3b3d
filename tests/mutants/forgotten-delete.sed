# rule: a delete that was not confirmed is repeated until it is
# file: src/global_queue/leave.rs
# sight: torture mutex 9
s|^                reap(tenure, node);$||
