# rule: a holder is told before the server can have ended its session
# file: src/link/lease.rs
# sight: torture mutex 9
s|let length = timeout - timeout / MARGIN;|let length = timeout * 2 - timeout / MARGIN;|
