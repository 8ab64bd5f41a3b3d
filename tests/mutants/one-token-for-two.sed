# rule: two contenders of one folder are never created in one transaction
# file: src/link/core/waiting.rs
# sight: cargo test --test it two_contenders
s/let is_first_there = |folder| !self.folders.contains(folder);/let is_first_there = |_: \&str| true;/
