# rule: a holder learns that somebody removed its node
# file: src/tenure/own_nodes.rs
# sight: cargo test --quiet --test it a_node_removed_under_its_holder
s|^            self.lose(LossReason::Removed);$||
