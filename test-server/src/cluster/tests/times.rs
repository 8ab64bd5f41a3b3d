//! How long things take, to the millisecond of their clock.

use super::*;

#[test]
fn an_election_takes_as_long_as_it_says() {
    for member in 0..3 {
        let mut bench = Bench::new(3);
        assert!(bench.cluster.make_leader(member, bench.now));
        bench.cluster.stop(member, bench.now);
        bench.pass(TICK / 2 - MS);
        assert_eq!(bench.cluster.leader(), None);
        bench.pass(MS);
        assert!(bench.cluster.leader().is_some_and(|new| new != member));
    }
}

/// The leader hears of a follower's client with the answer to its next PING, half a tick later at most,
/// and ends sessions at whole ticks.
#[test]
fn a_session_ends_everywhere_at_one_time_which_is_not_late() {
    for begun in (0..100).step_by(7) {
        for seat in 0..3 {
            let mut bench = Bench::new(3);
            bench.pass(MS * begun);
            let client = bench.connect(seat);
            bench.pass(MS * 90);
            assert_eq!(bench.ask(client, &get("/")), OK);
            let (now, (member, id)) = (bench.now, client.at);
            bench
                .cluster
                .order(member, now, |machine| machine.end(id, now));
            let ended = [0, 1, 2].map(|_| None);
            let ended = (0..=700).fold(ended, |ended: [Option<u32>; 3], ms| {
                let here = [0, 1, 2].map(|member| {
                    let sessions = &bench.cluster.machine(member).core.sessions;
                    let is_over = !sessions.contains(client.session);
                    ended[member].or(is_over.then_some(ms))
                });
                bench.pass(MS);
                here
            });
            let at = ended[0].expect("it ends");
            assert_eq!(ended, [Some(at); 3], "begun at {begun} ms at {seat}");
            let earliest = T;
            let latest = T + TICK / 2 + TICK;
            assert!(
                (earliest..=latest).contains(&(MS * at)),
                "begun at {begun} ms at {seat}: {at} ms"
            );
        }
    }
}
