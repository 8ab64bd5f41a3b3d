# rule: whoever waits for one of several locks keeps nobody from a later one
# file: src/local_queue/candidate.rs
# sight: model together
s|^    drop(candidates);|    let _kept = candidates;|
