# rule: a surviving holder is Held again after a reconnect
# file: src/session/transitions.rs
# sight: model tenures
s|^        if to_verify {$|        if to_verify \&\& false {|
