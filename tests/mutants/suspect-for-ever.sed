# rule: a surviving holder is Held again, whichever look comes last
# file: src/tenure/mod.rs
# sight: model tenures
s|self.proven_on.fetch_max(connection, Ordering::AcqRel);|self.proven_on.store(connection, Ordering::Release);|
