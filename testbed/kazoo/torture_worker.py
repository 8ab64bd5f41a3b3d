"""A worker of the torture that takes kazoo's own Lock or Election, as torture_worker takes ours.

`torture_worker.py kazoo-mutex|kazoo-election SERVERS PATH SESSION_MS NAME HISTORY SEED` obeys the same
words on its input and writes the same history; torture_checker/main.rs describes it.

What counts as held is what kazoo's documentation lets a careful user conclude, who has a listener on
the connection's state: who holds pauses at SUSPENDED (`unsure`), goes on if CONNECTED follows, and has
lost all at LOST. A LOST that comes while a call is under way counts against what the call gets, too: it
cannot be told in which session that was. Each thread has a lock of its own, on the one client of the
process. A release that fails is repeated until it succeeds.

An election is a lock inside, which it takes without a limit of time and gives back when the leader's
function returns. If that fails, its lock is released again in the same way: it leads for good otherwise.
"""

import logging
import os
import random
import sys
import threading
import time
import traceback

from kazoo.client import KazooClient
from kazoo.exceptions import CancelledError, KazooException, LockTimeout
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

THREADS = 3
LOOK_EVERY_S = 0.01
RELEASE_AGAIN_S = 0.05


class History:
    def __init__(self, path):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, who, event):
        # One write, which the system appends as a whole.
        os.write(self._file, f"{time.monotonic_ns()} {who} {event}\n".encode())


class Standing:
    """What the listener has heard."""

    def __init__(self):
        self.losses = 0
        self.is_suspended = False

    def listen(self, state):
        # One thread of kazoo's calls this, and nothing else writes here.
        if state == KazooState.LOST:
            self.losses += 1
        self.is_suspended = state != KazooState.CONNECTED

    def since(self, losses):
        if self.losses != losses:
            return "lost"
        return "unsure" if self.is_suspended else "held"


class Ground:
    """What all threads of the process share."""

    def __init__(self, client, path, session_s, history, standing, long_sections):
        self.client = client
        self.path = path
        self.session_s = session_s
        self.history = history
        self.standing = standing
        self.long_sections = long_sections
        self.rests = threading.Event()
        self._last_id = 0
        self._ids = threading.Lock()

    def next_id(self):
        with self._ids:
            self._last_id += 1
            return self._last_id


class Performer(threading.Thread):
    def __init__(self, who, ground, seed):
        # A daemon, because a call may hang, and must not keep the process.
        super().__init__(daemon=True)
        self._who = who
        self._ground = ground
        self._random = random.Random(seed)
        identifier = f"kazoo pid={os.getpid()} thread={who}"
        self._lock = ground.client.Lock(ground.path, identifier=identifier)

    def run(self):
        try:
            self._perform()
        except BaseException:
            traceback.print_exc()
            # Seen by the checker, which misses no thread.
            os._exit(1)

    def _perform(self):
        while not self._ground.rests.is_set():
            number = self._ground.next_id()
            losses = self._ground.standing.losses
            if self._acquire(number):
                self._hold(number, losses)
            self._pause()

    def _pause(self):
        most_s = self._random.choices([0, 0.02, 0.4], [6, 3, 1])[0]
        time.sleep(self._random.uniform(0, most_s))

    def _note(self, event):
        self._ground.history.note(self._who, event)

    def _acquire(self, number):
        time_s = self._random.uniform(0, self._ground.session_s / 2)
        verb = self._random.choices(["wait", "try", "for", "cancel"], [2, 2, 5, 1])[0]
        if verb == "wait":
            return self._call(number, verb, None, self._lock.acquire)
        if verb == "try":
            # It waits for nobody but the server.
            patience_s = self._ground.session_s * 2 / 3
            return self._call(number, verb, patience_s, lambda: self._lock.acquire(blocking=False))
        if verb == "for":
            return self._call(number, verb, time_s, lambda: self._lock.acquire(timeout=time_s))
        return self._until_cancelled(
            number, time_s, lambda: self._call(number, "cancel", None, self._lock.acquire)
        )

    def _until_cancelled(self, number, after_s, call):
        has_returned = self._has_gotten = threading.Event()

        def cancel():
            if not has_returned.wait(after_s):
                self._note(f"cancel id={number}")
                self._lock.cancel()

        canceller = threading.Thread(target=cancel, daemon=True)
        canceller.start()
        result = call()
        has_returned.set()
        canceller.join()
        return result

    def _call(self, number, verb, bound_s, acquire):
        bound = "" if bound_s is None else f" bound_ms={int(bound_s * 1000)}"
        self._note(f"call id={number} verb={verb}{bound}")
        why = "busy"
        try:
            if acquire():
                node = f"{self._ground.path}/{self._lock.node}"
                self._note(f"got id={number} right=alone node={node}")
                return True
        except Exception as error:
            why = reason(error)
        self._note(f"none id={number} why={why}")
        return False

    def _hold(self, number, losses):
        self._be_inside(number, losses)
        self._give(number)

    def _be_inside(self, number, losses):
        until = time.monotonic() + self._section_s()
        while not self._is_lost(number, losses) and time.monotonic() < until:
            time.sleep(max(0, min(LOOK_EVERY_S, until - time.monotonic())))

    def _section_s(self):
        kind = self._random.randrange(100)
        if kind < self._ground.long_sections:
            # Long enough for a session to end in it.
            most_s = self._ground.session_s * 4
        else:
            most_s = 0.02 if kind < 80 else 0.2
        return self._random.uniform(0, most_s)

    def _is_lost(self, number, losses):
        began = time.monotonic_ns()
        state = self._ground.standing.since(losses)
        self._note(f"look id={number} state={state} began={began}")
        return state == "lost"

    def _give(self, number):
        self._note(f"give id={number}")
        why = self._release("released")
        self._note(f"given id={number} why={why}")

    def _release(self, why):
        while True:
            try:
                self._lock.release()
                return why
            except KazooException as error:
                # The lock stays ours until a release succeeds: no other call is possible on it.
                why = f"released-after-{reason(error)}"
                time.sleep(RELEASE_AGAIN_S)


class Candidate(Performer):
    """Stands in an election again and again."""

    def __init__(self, who, ground, seed):
        super().__init__(who, ground, seed)
        identifier = f"kazoo pid={os.getpid()} thread={who}"
        self._election = ground.client.Election(ground.path, identifier)
        self._lock = self._election.lock

    def _perform(self):
        while not self._ground.rests.is_set():
            number = self._ground.next_id()
            losses = self._ground.standing.losses
            if self._random.randrange(10) < 8:
                self._stand(number, "wait", losses)
            else:
                after_s = self._random.uniform(0, self._ground.session_s / 2)
                self._until_cancelled(
                    number, after_s, lambda: self._stand(number, "cancel", losses)
                )
            self._pause()

    def _stand(self, number, verb, losses):
        self._note(f"call id={number} verb={verb}")
        has_led = False

        def lead():
            nonlocal has_led
            has_led = True
            if verb == "cancel":
                # A cancel that came now would end the next campaign.
                self._has_gotten.set()
            node = f"{self._ground.path}/{self._lock.node}"
            self._note(f"got id={number} right=alone node={node}")
            self._be_inside(number, losses)
            self._note(f"give id={number}")

        why = "cancelled"
        try:
            self._election.run(lead)
        except Exception as error:
            why = reason(error)
            if has_led:
                why = self._release(f"released-after-{why}")
        else:
            if has_led:
                why = "released"
        self._note(f"{'given' if has_led else 'none'} id={number} why={why}")


def reason(error):
    if isinstance(error, LockTimeout):
        return "timeout"
    if isinstance(error, CancelledError):
        return "cancelled"
    return type(error).__name__


def connect(servers, session_s, standing):
    """Connects, however long that takes: the nemesis may be at it."""
    # It warns of each break of a connection.
    logging.getLogger("kazoo").addHandler(logging.NullHandler())
    client = KazooClient(hosts=servers, timeout=session_s)
    client.add_listener(standing.listen)
    while True:
        try:
            client.start(timeout=session_s * 5)
            return client
        except KazooTimeoutError as error:
            print(f"torture worker: {error}", file=sys.stderr)


def wait_for(word):
    for line in sys.stdin:
        if line.strip() == word:
            return
    # Without the driver there is nothing to live for.
    os._exit(1)


def main():
    kind, servers, path, session_ms, name, history, seed = sys.argv[1:]
    dice = random.Random(int(seed))
    history, standing = History(history), Standing()
    client = connect(servers, int(session_ms) / 1000, standing)
    # Some are quick, and some sit on what they have.
    long_sections = dice.choice([1, 30])
    ground = Ground(client, path, int(session_ms) / 1000, history, standing, long_sections)
    perform = {"kazoo-mutex": Performer, "kazoo-election": Candidate}[kind]
    performers = [
        perform(f"{name}.{thread}", ground, dice.getrandbits(64)) for thread in range(THREADS)
    ]
    for performer in performers:
        performer.start()
    wait_for("rest")
    ground.rests.set()
    for performer in performers:
        performer.join()
    print("resting", flush=True)
    wait_for("close")
    client.stop()
    client.close()
    history.note(name, "done")


if __name__ == "__main__":
    main()
