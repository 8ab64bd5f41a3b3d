//! A member of a double barrier that is refused while it looks for `ready`, which comes and goes.

use testbed::proxy::{Counters, Hold, Trap};
use testbed::{Action, Matcher, Proxy, opcode};
use zklock::{Client, Dialect, DoubleBarrier};

use super::THROTTLED;
use crate::fixtures::{SOON, client_at, raw, server, wait_for_children};

/// A double barrier in the dialect in which `ready` goes as soon as one of the members leaves.
struct Counted {
    folder: String,
    slow: Proxy,
    fast: Proxy,
}

impl Counted {
    fn in_folder(folder: &str) -> Self {
        let [slow, fast] = [(), ()].map(|()| Proxy::start(server().addr()));
        Self {
            folder: folder.to_owned(),
            slow,
            fast,
        }
    }

    fn ready(&self) -> String {
        format!("{}/ready", self.folder)
    }

    fn member(&self, proxy: &Proxy) -> (Client, DoubleBarrier) {
        let client = client_at(&proxy.connect_string());
        let barrier = DoubleBarrier::builder(&client, &self.folder, 2).dialect(Dialect::Kazoo);
        let barrier = barrier.build().expect("good");
        (client, barrier)
    }

    /// The slow one waits, and while it looks again for the reason that the fast one has come, with
    /// `trouble` for some of its requests, `ready` comes and goes. It must get in all the same.
    fn comes_and_goes(&self, trouble: impl FnOnce(&Proxy) -> (Trap, Option<Hold>)) {
        let (_slow_client, slow) = self.member(&self.slow);
        let (_fast_client, fast) = self.member(&self.fast);
        std::thread::scope(|scope| {
            let enters = scope.spawn(|| slow.enter_for(SOON));
            self.slow
                .wait_for(|seen| seen.replied(opcode::EXISTS) > 0, SOON);
            wait_for_children(server(), &self.folder, 1);
            let (refused, hold) = trouble(&self.slow);
            let make = Matcher::next(opcode::CREATE).with_path_containing("/ready");
            let make = self.fast.hold_request(make);
            let inside = scope.spawn(|| fast.enter().expect("two are there"));
            make.wait_until_held(SOON);
            match hold {
                // It looks, and does not know of `ready`.
                Some(hold) => {
                    hold.wait_until_held(SOON);
                    make.release();
                    let inside = inside.join().expect("no panic");
                    hold.release();
                    refused.wait_until_sprung(SOON);
                    raw(server()).delete(&self.ready()).expect("it stands");
                    drop(inside);
                }
                None => {
                    refused.wait_until_sprung(SOON);
                    make.release();
                    let inside = inside.join().expect("no panic");
                    raw(server()).delete(&self.ready()).expect("it stands");
                    drop(inside);
                }
            }
            // Else the slow one would find enough members, and make another `ready`.
            wait_for_children(server(), &self.folder, 1);
            refused.disarm();
            let entered = enters.join().expect("no panic").expect("answers");
            drop(entered.expect("it was counted"));
        });
    }
}

/// What it had seen of `ready` was forgotten, as the list beside it was refused.
#[test]
fn a_member_that_saw_ready_gets_in_though_its_list_is_refused() {
    let path = "/refusals/counted-list";
    Counted::in_folder(path).comes_and_goes(|slow| {
        let look = Matcher::next(opcode::EXISTS).with_path_containing(path);
        let hold = slow.hold_request(look);
        let list = Matcher::every(opcode::GET_CHILDREN).with_path_containing(path);
        let refused = slow.on_request(list, Action::Refuse(THROTTLED));
        (refused, Some(hold))
    });
}

/// The same of the first look, before which no watch could tell of `ready`.
#[test]
fn a_member_whose_first_look_saw_ready_gets_in_though_its_list_is_refused() {
    let counted = Counted::in_folder("/refusals/counted-first");
    let (_slow_client, slow) = counted.member(&counted.slow);
    let (_fast_client, fast) = counted.member(&counted.fast);
    let look = Matcher::next(opcode::EXISTS).with_path_containing(&counted.ready());
    let hold = counted.slow.hold_request(look);
    let list = Matcher::every(opcode::GET_CHILDREN).with_path_containing(&counted.folder);
    let refused = counted.slow.on_request(list, Action::Refuse(THROTTLED));
    std::thread::scope(|scope| {
        let enters = scope.spawn(|| slow.enter_for(SOON));
        hold.wait_until_held(SOON);
        let inside = fast.enter().expect("two are there");
        hold.release();
        let looks = |more: u64| {
            let wanted = counted.slow.counters().replied(opcode::EXISTS) + more;
            let looked = |seen: &Counters| seen.replied(opcode::EXISTS) >= wanted;
            counted.slow.wait_for(looked, SOON);
        };
        looks(1);
        raw(server()).delete(&counted.ready()).expect("it stands");
        // Else it would find enough members, and make another.
        drop(inside);
        wait_for_children(server(), &counted.folder, 1);
        // The first of them may have been on its way before.
        looks(2);
        refused.disarm();
        let entered = enters.join().expect("no panic").expect("answers");
        drop(entered.expect("it was counted"));
    });
}

/// The watch that told of `ready` was given up for one that was never left.
#[test]
fn a_member_whose_watch_told_of_ready_gets_in_though_its_look_is_refused() {
    let path = "/refusals/counted-look";
    Counted::in_folder(path).comes_and_goes(|slow| {
        let look = Matcher::every(opcode::EXISTS).with_path_containing(path);
        (slow.on_request(look, Action::Refuse(THROTTLED)), None)
    });
}
