# rule: a delete whose answer nobody waits for is judged all the same
# file: src/global_queue/release.rs
# sight: model permits
s#^                if let Err(error) = end(answers) {$#                if let Err(error) = { drop((end, answers)); Ok::<(), Error>(()) } {#
