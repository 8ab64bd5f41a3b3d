# rule: what was done is done: no second run of it begins
# file: src/znode/job/rules.rs
# sight: cargo test --lib znode::job
s/            RunState::Running | RunState::Done => return false,/            RunState::Running => return false, RunState::Done => return true,/
