# rule: no take-over if a child of the folder came or went before
# file: src/global_queue/take_over.rs
# sight: model take_over
s|folder.state().is_silent_before(deleted)|true|
