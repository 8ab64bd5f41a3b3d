# rule: no take-over by the silence of a watch that may have been taken off
# file: src/global_queue/take_over.rs
# sight: model take_over
s|folder.is_sure(contact)|folder.is_live()|
