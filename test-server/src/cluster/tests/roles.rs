//! Who is what: whom the verbs of an ensemble mean by its leader and its followers.

use super::*;

#[test]
fn a_frozen_server_is_no_follower() {
    let mut bench = Bench::new(3);
    let [one, other] = bench.followers();
    for (frozen, awake) in [(one, other), (other, one)] {
        bench.cluster.machine_mut(frozen).pause();
        assert!(bench.cluster.serves(frozen), "it does not know");
        assert_eq!(bench.cluster.follower(), Some(awake));
        bench.cluster.resume(frozen, bench.now);
    }
    bench.cluster.machine_mut(one).pause();
    bench.cluster.machine_mut(other).pause();
    assert_eq!(bench.cluster.follower(), None);
}

#[test]
fn a_deposed_leader_is_no_follower_until_it_has_noticed() {
    for old in 0..3 {
        let mut bench = Bench::new(3);
        assert!(bench.cluster.make_leader(old, bench.now));
        bench.cluster.machine_mut(old).pause();
        bench.pass(NOTICED);
        bench.isolate(old, true);
        bench.cluster.resume(old, bench.now);
        let leader = bench.leader();
        assert!(leader != old && bench.cluster.serves(old));
        let third = 3 - old - leader;
        assert_eq!(bench.cluster.follower(), Some(third));
        // With nobody else left there is none, rather than the wrong one.
        bench.cluster.machine_mut(third).pause();
        assert_eq!(bench.cluster.follower(), None);
    }
}

#[test]
fn a_frozen_leader_ends_no_session() {
    let mut bench = Bench::new(3);
    let (old, [one, other]) = (bench.leader(), bench.followers());
    let client = bench.connect(one);
    assert_eq!(bench.ask(client, &create("/e", 1)), OK);
    bench.cluster.machine_mut(old).pause();
    let session = client.session;
    assert!(!bench.cluster.expire(one, session, bench.now));
    assert!([one, other].iter().all(|member| bench.has(*member, "/e")));
    // The next leader has begun to count the session's time anew.
    bench.pass(NOTICED);
    assert_ne!(bench.leader(), old);
    assert!(bench.cluster.expire(one, session, bench.now));
    assert!(![one, other].iter().any(|member| bench.has(*member, "/e")));
    assert!(!bench.cluster.expire(one, session, bench.now));
}
