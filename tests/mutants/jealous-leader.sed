# rule: a leadership is no thread's: whoever has the last share of it gives it back, and nobody enters it again
# file: src/local_queue/detached.rs
# sight: model election
/pub(crate) fn disown/,/^    }/ s/self.owner.store(0, Ordering::Relaxed);/let _ = \&self.owner;/
