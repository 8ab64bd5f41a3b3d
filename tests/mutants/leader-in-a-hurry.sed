# rule: the next leader comes after the last worker of the one before
# file: src/recipe/election/leadership.rs
# sight: cargo test --quiet --all-features --test it recipes::election::
s|            hold: Arc::clone(&self.0.hold),|            hold: { let other = LeaderHold { queue: Arc::clone(\&self.0.hold.queue), tenure: Arc::clone(\&self.0.hold.tenure), own: Arc::clone(\&self.0.hold.own), is_given_back: true }; Arc::new(other) },|
