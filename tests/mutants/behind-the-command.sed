# rule: the lock is kept until nobody is left of what the command has started
# file: cli/src/run/supervisor.rs
# sight: cargo test --quiet -p zklock-cli --test it whoever_leaves_the_group_keeps_the_lock
s|if self.settings.leave_children \&\& self|if self|
