# rule: a holder is told before the server can have ended its session
# file: src/link/core/lease.rs
# sight: torture mutex 9
s|nanos_of(timeout - timeout / MARGIN)|nanos_of(timeout * 2 - timeout / MARGIN)|
