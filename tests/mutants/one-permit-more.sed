# rule: no more permits than the maximum
# file: src/global_queue/permits.rs
# sight: torture semaphore 3
s|permits.count(children.iter()).saturating_sub(max);|permits.count(children.iter()).saturating_sub(max + 1);|
