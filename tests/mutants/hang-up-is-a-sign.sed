# rule: a hang-up says nothing of what the server has answered on that connection
# file: src/link/core/known.rs
# sight: cargo test --quiet --lib a_hang_up_says_nothing
s/^        if !std::mem::replace(&mut self.is_settled, true) {/        if !std::mem::replace(\&mut self.is_settled, false) || self.was_answered {/
