# rule: a reader waits for the writers who are ahead
# file: src/znode/verdict.rs
# sight: torture rw 3
s|Self::Reader => class == Class::Write,|Self::Reader => class == Class::Write \&\& false,|
