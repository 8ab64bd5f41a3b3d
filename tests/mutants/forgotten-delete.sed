# rule: a delete that was not confirmed is repeated until it is
# file: src/global_queue/leave.rs
# sight: model mutex
s|^            reap(tenure, node);$||
