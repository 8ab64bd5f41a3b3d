# rule: the command gets no secret of ours
# file: cli/src/run/mod.rs
# sight: cargo test --quiet -p zklock-cli --test it a_command_does_not_get_our_secrets
s|if !arguments.keep_env {|if false {|
