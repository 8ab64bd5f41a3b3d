# rule: a loss is told in time though the thread that connects is stuck
# file: src/session/zk.rs
# sight: cargo test --quiet --all-features --test it a_loss_is_told_though
s|^        self.session.upgrade()?.look_at_clock()$|        self.session.upgrade()?.look_at_clock().and(None)|
