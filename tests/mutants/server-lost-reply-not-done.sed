# rule: in the server for tests, a request whose reply is lost was done
# file: test-server/src/trouble/rules.rs
# sight: cargo test --quiet -p zklock-test --test it a_lost_request_is_not_done
s|Phase::Reply => &mut sentence.on_reply,|Phase::Reply => \&mut sentence.on_request,|
