# rule: a delete that was not confirmed is repeated until it is
# file: src/global_queue/release.rs
# sight: model mutex
/^        not_yet => {$/,/^        }$/s|^            reap(tenure, node);$||
