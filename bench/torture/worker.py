"""One process of contenders: `python -m bench.torture.worker`, started by `bench.torture.fleet`.

The assignment is the first line of stdin. After that stdin is a lifeline: when it ends, no lock is taken any more, and
the process leaves. Should its parent die while this process is stopped by a signal, the system kills it, where it can.

Each thread takes locks over and over: for moments, for longer than the lease with renewals, and now and then for longer
than the lease without any. A holder never asks whether its lease is still good before it writes: that is what the fence
of the resource is for.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from contextlib import ExitStack, suppress
from dataclasses import asdict
from random import Random
from typing import TYPE_CHECKING, Any, Final

from bench.torture.assignment import Assignment
from bench.torture.contenders import CONTENDERS, Wish
from bench.torture.resource import Asked
from segmented.clock import SystemClock
from segmented.errors import AcquireTimeout, LeaseLost, PartlyReleased, StoreUnavailable
from segmented.servers.guard import parent_death_signal
from segmented.stores.quorum import QuorumStore
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from bench.torture.contenders import Held
    from segmented.plans.drivers import Store

EXIT_CRASHED: Final = 4
MOMENT: Final = 0.02
"""Seconds that most holders stay, at most."""
RENEWED: Final = 0.04
"""Share of holders who stay for longer, and renew."""
OVERSLEPT: Final = 0.06
"""Share of those who stay for longer than their lease, and do not."""
TRIES: Final = 0.1
"""Share of those who do not wait."""
HURRIED: Final = 0.1
"""Share of those who give up soon."""
HURRIED_SECONDS: Final = 0.05
PATIENT_SECONDS: Final = 10.0
ANSWER_WITHIN: Final = 0.2
"""Seconds that a quorum waits for a server: several processes share few cores."""

_clock = SystemClock()


class DeskClosed(Exception):
    """The resource is gone, and so is the reason to be here."""


class Visitor:
    """A contender's connection to the resource."""

    def __init__(self, path: str, process: int) -> None:
        """Connect, and say who it is."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._answers = self._socket.makefile("rb")
        self.ask("hello", {"process": process})

    def ask(self, do: str, said: dict[str, Any]) -> Any:  # noqa: ANN401  # whatever the desk answers
        """Ask, and return the answer. Raises DeskClosed."""
        try:
            self._socket.sendall(json.dumps({"do": do, **said}).encode() + b"\n")
            line = self._answers.readline()
        except OSError as error:
            raise DeskClosed from error
        if not line:
            raise DeskClosed
        return json.loads(line)


class Contender(threading.Thread):
    """One thread, which takes locks until it is told to stop."""

    def __init__(self, assignment: Assignment, index: int, store: Store, stop: threading.Event) -> None:
        """Contend as thread number `index`."""
        super().__init__(daemon=True)
        self._assignment = assignment
        self._random = Random(f"{assignment.seed}/{assignment.process}/{index}")
        self._store = store
        self._stop_asked = stop
        self._visitor = Visitor(assignment.desk, assignment.process)

    def run(self) -> None:
        """Take locks; anything that is not the weather of a torture ends the process, so that it is noticed."""
        try:
            while not self._stop_asked.is_set():
                self._round()
        except DeskClosed:
            self._stop_asked.set()
        except Exception:  # noqa: BLE001  # whatever it is, the torture is to notice
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
            os._exit(EXIT_CRASHED)

    def _round(self) -> None:
        ttl, roll = self._assignment.ttl, self._random.random()
        is_renewed = roll < RENEWED
        is_overslept = not is_renewed and roll < RENEWED + OVERSLEPT
        stay = self._random.uniform(0.0, MOMENT)
        if is_renewed:
            stay = ttl * self._random.uniform(0.8, 1.6)
        elif is_overslept:
            stay = ttl * self._random.uniform(1.2, 1.8)
        names = self._assignment.names
        wish = Wish(names, self._random.choice(names), ttl, is_renewed, self._patience())
        asked_at = _clock.now()
        try:
            held = CONTENDERS[self._assignment.kind](self._store, wish, self._random)
        except (AcquireTimeout, LeaseLost, StoreUnavailable) as error:
            reason = {AcquireTimeout: "timeout", LeaseLost: "late"}.get(type(error), "unavailable")
            waited = _clock.now() - asked_at
            self._visitor.ask("miss", {"name": wish.name, "reason": reason, "waited": waited})
            if reason == "unavailable":
                self._stop_asked.wait(self._random.uniform(0.0, ttl))
            return
        self._use(held, stay, asked_at)

    def _patience(self) -> float:
        roll = self._random.random()
        if roll < TRIES:
            return 0.0
        return HURRIED_SECONDS if roll < TRIES + HURRIED else PATIENT_SECONDS

    def _use(self, held: Held, stay: float, asked_at: float) -> None:
        held_since = _clock.now()
        open_ones = []
        for name, token in held.tokens.items():
            waited = held_since - asked_at
            asked = Asked(name, token, held.holder, held.mode, held_since, held.lease.trusted_until, waited)
            access = self._visitor.ask("enter", asdict(asked))["access"]
            if access is not None:
                open_ones.append(access)
        for step in range(2):
            self._stop_asked.wait(stay / 2)
            for access in open_ones:
                self._tell("write", access, held)
            if step == 0 and held.again is not None:
                self._enter_again(held, asked_at)
        for access in open_ones:
            self._tell("leave", access, held)
        with suppress(LeaseLost, StoreUnavailable, PartlyReleased):  # it lapses, or has lapsed
            held.lease.release()

    def _enter_again(self, held: Held, asked_at: float) -> None:
        if held.again is None:
            return
        with suppress(AcquireTimeout, LeaseLost, StoreUnavailable):
            self._use(held.again(), 0.0, asked_at)

    def _tell(self, do: str, access: int, held: Held) -> None:
        self._visitor.ask(do, {"access": access, "trusted_until": held.lease.trusted_until})


def main(line: str) -> int:
    """Contend as the assignment says; returns the exit code."""
    die_with_parent = parent_death_signal(signal.SIGKILL)
    if die_with_parent is not None:
        die_with_parent()
    assignment = Assignment.from_json(line)
    stop = threading.Event()
    with ExitStack() as stack:
        store = _store(assignment, stack)
        contenders = [Contender(assignment, index, store, stop) for index in range(assignment.threads)]
        for contender in contenders:
            contender.start()
        sys.stdin.read()
        stop.set()
        for contender in contenders:
            contender.join()
    return 0


def _store(assignment: Assignment, stack: ExitStack) -> Store:
    stores = [stack.enter_context(RedisStore.from_url(url)) for url in assignment.urls]
    if len(stores) == 1:
        return stores[0]
    return stack.enter_context(QuorumStore(stores, answer_within=ANSWER_WITHIN))


if __name__ == "__main__":
    sys.exit(main(sys.stdin.readline()))
