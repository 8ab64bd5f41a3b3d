# rule: a delete whose answer nobody waits for is judged all the same
# file: src/global_queue/leave.rs
# sight: model permits
s|^                    let result = rest.end(deleted);$|                    let result: Result<()> = { let _ = (rest, deleted); Ok(()) };|
