"""A process for tests to command: it uses kazoo's recipes when told to, and says what came of it.

`puppet.py HOST:PORT` says `ready` when its session stands, and then answers each line of its input
with one line. It ends when its input does. Objects are called by names that the commands choose:

    lock NAME PATH [EXTRA_PATTERN]      makes one: ok
    sharedlock NAME PATH                a lock that queues with Curator's: ok
    readlock NAME PATH
    writelock NAME PATH
    semaphore NAME PATH MAX
    doublebarrier NAME PATH MEMBERS
    acquire NAME                        waits: ok
    acquire-for NAME SECONDS            yes, timeout
    try NAME                            yes, no
    release NAME                        ok
    enter NAME, leave NAME              of a double barrier, wait: ok
    begin NAME                          acquires (enters) in a thread: ok at once
    begin-leave NAME                    leaves in a thread: ok at once
    begun? NAME                         whether that thread has got there: yes, no
    finish NAME                         waits for that thread: ok
    election NAME PATH IDENTIFIER       a candidate, which does not stand yet: ok
    stand NAME                          stands in a thread: ok at once
    leads? NAME                         yes, no
    lead NAME                           waits until it leads: ok
    resign NAME                         ends its leadership: ok
    contenders NAME                     the identifiers, as a JSON list
    campaign PATH ROUNDS HISTORY_FILE   stands and leads, and writes when it led: ok
    run NAME ROUNDS HISTORY_FILE        takes and releases it, and writes when it held it: ok

What goes wrong is answered with `error TYPE: TEXT`.
"""

import json
import os
import queue
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
from kazoo.recipe.lock import Lock, Semaphore

IDENTIFIER = "kazoo"
CONNECT_S = 30
# How long a command may go on after the end of the input, before it is cut short.
GRACE_S = 5
# How long a section of `run` lasts. Work, not a wait: an empty one would seldom show an overlap.
SECTION_S = 0.001


class SharedLock(Lock):
    # As the README shows it.
    _NODE_NAME, _EXCLUDE_NAMES = "-lock-", ["-lock-"]


class Refused(Exception):
    """kazoo said no where the command left it no choice, without an exception of its own."""


class Attempt:
    """A call that waits, in a thread. The commands go on meanwhile."""

    def __init__(self, call):
        self._call = call
        self._error = None
        # A daemon, because the wait may never end, and must not keep the process.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            self._call()
        except Exception as error:
            self._error = error

    def has_arrived(self):
        if self._thread.is_alive():
            return False
        self.wait()
        return True

    def wait(self):
        self._thread.join()
        if self._error is not None:
            raise self._error


class Candidate:
    """An election, and the leader's function, which returns when it is told to."""

    def __init__(self, election):
        self._election = election
        self._leads = threading.Event()
        self._resigns = threading.Event()
        self._attempt = None

    def stand(self):
        self._leads.clear()
        self._resigns.clear()
        self._attempt = Attempt(lambda: self._election.run(self._lead))

    def _lead(self):
        self._leads.set()
        self._resigns.wait()

    def leads(self):
        return self._leads.is_set()

    def wait(self):
        self._leads.wait()

    def resign(self):
        self._resigns.set()
        self._attempt.wait()

    def contenders(self):
        return self._election.contenders()


class Puppet:
    def __init__(self, client):
        self._client = client
        self._objects = {}
        self._attempts = {}
        self._commands = {
            "lock": self._lock,
            "sharedlock": self._sharedlock,
            "readlock": self._readlock,
            "writelock": self._writelock,
            "semaphore": self._semaphore,
            "doublebarrier": self._doublebarrier,
            "acquire": self._acquire,
            "acquire-for": self._acquire_for,
            "try": self._try,
            "release": self._release,
            "enter": self._enter,
            "leave": self._leave,
            "begin": self._begin,
            "begin-leave": self._begin_leave,
            "begun?": self._begun,
            "finish": self._finish,
            "election": self._make_election,
            "stand": self._stand,
            "leads?": self._leads,
            "lead": self._lead,
            "resign": self._resign,
            "contenders": self._contenders,
            "campaign": self._campaign,
            "run": self._run,
        }

    def obey(self, line):
        try:
            command, *words = line.split()
            return self._commands[command](*words) or "ok"
        except Exception as error:
            text = " ".join(str(error).split())
            return f"error {type(error).__name__}: {text}"

    def _lock(self, name, path, *patterns):
        self._objects[name] = self._client.Lock(
            path, identifier=IDENTIFIER, extra_lock_patterns=list(patterns)
        )

    def _sharedlock(self, name, path):
        self._objects[name] = SharedLock(self._client, path, identifier=IDENTIFIER)

    def _readlock(self, name, path):
        self._objects[name] = self._client.ReadLock(path, identifier=IDENTIFIER)

    def _writelock(self, name, path):
        self._objects[name] = self._client.WriteLock(path, identifier=IDENTIFIER)

    def _semaphore(self, name, path, most):
        self._objects[name] = self._client.Semaphore(
            path, identifier=IDENTIFIER, max_leases=int(most)
        )

    def _doublebarrier(self, name, path, members):
        self._objects[name] = self._client.DoubleBarrier(
            path, int(members), identifier=IDENTIFIER
        )

    def _acquire(self, name):
        if not self._objects[name].acquire():
            raise Refused("acquire returned, without it")

    def _acquire_for(self, name, seconds):
        try:
            # Which of the two ways to say no it is depends on where the time ran out.
            gotten = self._objects[name].acquire(timeout=float(seconds))
        except LockTimeout:
            gotten = False
        return "yes" if gotten else "timeout"

    def _try(self, name):
        return yes_or_no(self._objects[name].acquire(blocking=False))

    def _release(self, name):
        if not self._objects[name].release():
            raise Refused("it was not held")

    def _enter(self, name):
        barrier = self._objects[name]
        barrier.enter()
        # It swallows what goes wrong.
        if not barrier.participating:
            raise Refused("enter failed")

    def _leave(self, name):
        self._objects[name].leave()

    def _begin(self, name):
        wait = self._enter if hasattr(self._objects[name], "enter") else self._acquire
        self._attempts[name] = Attempt(lambda: wait(name))

    def _begin_leave(self, name):
        self._attempts[name] = Attempt(lambda: self._leave(name))

    def _begun(self, name):
        return yes_or_no(self._attempts[name].has_arrived())

    def _finish(self, name):
        self._attempts[name].wait()

    def _make_election(self, name, path, identifier):
        self._objects[name] = Candidate(self._client.Election(path, identifier))

    def _stand(self, name):
        self._objects[name].stand()

    def _leads(self, name):
        return yes_or_no(self._objects[name].leads())

    def _lead(self, name):
        self._objects[name].wait()

    def _resign(self, name):
        self._objects[name].resign()

    def _campaign(self, path, rounds, history):
        history = os.open(history, os.O_WRONLY | os.O_APPEND)
        try:
            for _ in range(int(rounds)):
                election = self._client.Election(path, IDENTIFIER)
                election.run(lambda: section(history))
        finally:
            os.close(history)

    def _contenders(self, name):
        it = self._objects[name]
        who = it.lease_holders() if isinstance(it, Semaphore) else it.contenders()
        return json.dumps(who)

    def _run(self, name, rounds, path):
        history = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            for _ in range(int(rounds)):
                self._acquire(name)
                section(history)
                self._release(name)
        finally:
            os.close(history)


def section(history):
    begun = time.monotonic_ns()
    time.sleep(SECTION_S)
    line = f"{begun} {time.monotonic_ns()} {IDENTIFIER} 1\n"
    # One write, which the system appends as a whole.
    os.write(history, line.encode())


def yes_or_no(truth):
    return "yes" if truth else "no"


def say(text):
    print(text, flush=True)


def read_commands(commands, ended):
    """Reads ahead. A command that waits for ever would otherwise outlive the test that gave it."""
    for line in sys.stdin:
        commands.put(line)
    commands.put(None)
    if not ended.wait(GRACE_S):
        os._exit(1)


def main():
    [servers] = sys.argv[1:]
    client = KazooClient(hosts=servers)
    client.start(timeout=CONNECT_S)
    puppet = Puppet(client)
    commands, ended = queue.Queue(), threading.Event()
    threading.Thread(target=read_commands, args=(commands, ended), daemon=True).start()
    say("ready")
    for line in iter(commands.get, None):
        say(puppet.obey(line))
    # Ends the session, and with it what was left held.
    client.stop()
    ended.set()


if __name__ == "__main__":
    main()
