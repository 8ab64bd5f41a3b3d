//! How a leader's time and a candidate's end: asked to, stuck, closed, refused.

use zklock::{Election, WhoLeads};

use crate::fixtures::client;

/// The request was written over the id, so nobody could read who led, and those who watch were told
/// of the same term again.
#[test]
fn a_leader_that_is_asked_to_step_down_keeps_its_id() {
    let path = "/election/asked-by-id";
    let clients = [client(), client()];
    let builder = Election::builder(&clients[0], path).id("host-8");
    let ours = builder.build().expect("a good path");
    let theirs = Election::new(&clients[1], path).expect("a good path");
    let leadership = ours.campaign().expect("nobody else");
    let before = theirs.leader().expect("answers").expect("one leads");
    let leader = theirs.participants().expect("answers").remove(0);
    assert!(theirs.revoke(&leader).expect("answers"));
    let asked = theirs.leader().expect("answers").expect("one leads");
    assert_eq!(asked.id(), "host-8");
    assert_eq!(WhoLeads::Leader(asked), WhoLeads::Leader(before));
    leadership.resign().expect("still ours");
}
