"""Uses kazoo's recipes on a server, and prints one line for each that works."""

import sys
import threading

from kazoo.client import KazooClient

WAIT = 30


def client():
    zk = KazooClient(hosts=sys.argv[1], timeout=10)
    zk.start(timeout=WAIT)
    return zk


def lock(one, other):
    held = one.Lock("/lock", "one")
    assert held.acquire(timeout=WAIT)
    waiting = other.Lock("/lock", "other")
    assert not waiting.acquire(blocking=False)
    got = threading.Event()
    thread = threading.Thread(target=lambda: waiting.acquire(timeout=WAIT) and got.set())
    thread.start()
    held.release()
    assert got.wait(WAIT)
    thread.join()
    assert other.Lock("/lock").contenders() == ["other"]
    waiting.release()


def barrier(one, other):
    gate = one.Barrier("/barrier")
    gate.create()
    passed = threading.Event()
    thread = threading.Thread(target=lambda: other.Barrier("/barrier").wait(WAIT) and passed.set())
    thread.start()
    assert not passed.is_set()
    assert gate.remove()
    assert passed.wait(WAIT)
    thread.join()
    members = [one.DoubleBarrier("/double", 2, "a"), other.DoubleBarrier("/double", 2, "b")]
    for step in ("enter", "leave"):
        threads = [threading.Thread(target=getattr(member, step)) for member in members]
        [thread.start() for thread in threads]
        [thread.join(WAIT) for thread in threads]
        assert not any(thread.is_alive() for thread in threads), step


def election(one, other):
    led = []
    threads = [
        threading.Thread(target=zk.Election("/election", name).run, args=(led.append, name))
        for zk, name in ((one, "one"), (other, "other"))
    ]
    [thread.start() for thread in threads]
    [thread.join(WAIT) for thread in threads]
    assert sorted(led) == ["one", "other"], led


def counter(one, other):
    counters = [one.Counter("/counter"), other.Counter("/counter")]

    def count(counter):
        for _ in range(20):
            counter += 1

    threads = [threading.Thread(target=count, args=(each,)) for each in counters]
    [thread.start() for thread in threads]
    [thread.join(WAIT) for thread in threads]
    assert counters[0].value == 40, counters[0].value


def party(one, other):
    first, second = one.Party("/party", "one"), other.Party("/party", "other")
    first.join()
    second.join()
    assert sorted(first) == ["one", "other"]
    second.leave()
    assert list(first) == ["one"]


def transaction(one, other):
    change = one.transaction()
    change.create("/t")
    change.create("/t/a", b"data")
    change.check("/t", 0)
    assert change.commit()[:2] == ["/t", "/t/a"]
    refused = one.transaction()
    refused.delete("/t/a")
    refused.check("/t", 7)
    assert len([step for step in refused.commit() if isinstance(step, Exception)]) == 2
    assert other.get("/t/a")[0] == b"data"


def watches(one, other):
    seen = []
    changed = threading.Condition()

    @one.ChildrenWatch("/t")
    def on_change(children):
        with changed:
            seen.append(sorted(children))
            changed.notify_all()

    other.create("/t/b")
    with changed:
        assert changed.wait_for(lambda: seen[-1] == ["a", "b"], WAIT), seen


def access(one, other):
    from kazoo.security import make_digest_acl

    one.add_auth("digest", "user:password")
    one.create("/closed", acl=[make_digest_acl("user", "password", all=True)])
    assert one.get("/closed")[1].version == 0
    try:
        other.get("/closed")
    except Exception as error:
        assert type(error).__name__ == "NoAuthError", error
    else:
        raise AssertionError("it is closed to others")


def main():
    one, other = client(), client()
    for recipe in (lock, barrier, election, counter, party, transaction, watches, access):
        recipe(one, other)
        print(recipe.__name__, flush=True)
    for zk in (one, other):
        zk.stop()
        zk.close()


main()
