# rule: a loss is pushed to the holder, not only there to be asked for
# file: src/tenure/mod.rs
# sight: torture mutex 9
s|^        self.loss.tell(reason);$||
