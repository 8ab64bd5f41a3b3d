# rule: a folder that has refused a create keeps out of others' packets
# file: src/global_queue/folder.rs
# sight: cargo test --quiet --all-features --test it a_folder_without_quota_keeps
s|^            self.unsure.store(APART, Ordering::Relaxed);||
