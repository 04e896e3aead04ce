"""One process of contenders: `python -m bench.torture.worker`, started by `bench.torture.processes`.

The assignment is the first line of stdin. When stdin ends, the process stops taking locks and exits. If the parent dies
while this process is paused by a signal, the system kills it where it can.

Each thread takes locks in a loop: for moments, for longer than the lease with renewals, and sometimes for longer than
the lease without renewal. A holder never checks its lease before it writes: the fence of the resource does that.
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

from bench.torture.contenders import CONTENDERS, LockRequest
from bench.torture.processes import Assignment
from bench.torture.resource import AccessRequest
from segmented.clock import SystemClock
from segmented.errors import AcquireTimeout, LeaseLost, PartlyReleased, StoreUnavailable
from segmented.servers.guard import parent_death_signal
from segmented.stores.quorum import QuorumStore
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from bench.torture.contenders import HeldLease
    from segmented.plans.drivers import Store

EXIT_CRASHED: Final = 4
MOMENT: Final = 0.02
"""Maximum seconds of a short hold."""
RENEWED: Final = 0.04
"""Share of holders that hold longer than the lease, and renew."""
OVERSLEPT: Final = 0.06
"""Share of holders that hold longer than the lease, and do not renew."""
TRIES: Final = 0.1
"""Share of contenders that do not wait."""
IMPATIENT: Final = 0.1
"""Share of contenders with a short timeout."""
IMPATIENT_SECONDS: Final = 0.05
PATIENT_SECONDS: Final = 10.0
ANSWER_TIMEOUT: Final = 0.2
"""Seconds that a quorum lock waits for a server: several processes share few cores."""

_clock = SystemClock()


class ResourceServerClosed(Exception):
    """The resource server has closed the connection."""


class ResourceClient:
    """A contender's connection to the resource."""

    def __init__(self, path: str, process: int) -> None:
        """Connect, and identify the process."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._answers = self._socket.makefile("rb")
        self.ask("hello", {"process": process})

    def ask(self, do: str, said: dict[str, Any]) -> Any:  # noqa: ANN401  # whatever the server answers
        """Send a request, and return the answer. Raises ResourceServerClosed."""
        try:
            self._socket.sendall(json.dumps({"do": do, **said}).encode() + b"\n")
            line = self._answers.readline()
        except OSError as error:
            raise ResourceServerClosed from error
        if not line:
            raise ResourceServerClosed
        return json.loads(line)


class Contender(threading.Thread):
    """A thread that takes locks until it is asked to stop."""

    def __init__(self, assignment: Assignment, index: int, store: Store, stop: threading.Event) -> None:
        """Create thread number `index` of the process."""
        super().__init__(daemon=True)
        self._assignment = assignment
        self._random = Random(f"{assignment.seed}/{assignment.process}/{index}")
        self._store = store
        self._stop_asked = stop
        self._client = ResourceClient(assignment.socket_path, assignment.process)

    def run(self) -> None:
        """Take locks. An error that no injected fault explains ends the process, so that the supervisor notices."""
        try:
            while not self._stop_asked.is_set():
                self._round()
        except ResourceServerClosed:
            self._stop_asked.set()
        except Exception:  # noqa: BLE001  # the supervisor must notice any error
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
            os._exit(EXIT_CRASHED)

    def _round(self) -> None:
        ttl, roll = self._assignment.ttl, self._random.random()
        is_renewed = roll < RENEWED
        is_overslept = not is_renewed and roll < RENEWED + OVERSLEPT
        hold_s = self._random.uniform(0.0, MOMENT)
        if is_renewed:
            hold_s = ttl * self._random.uniform(0.8, 1.6)
        elif is_overslept:
            hold_s = ttl * self._random.uniform(1.2, 1.8)
        names = self._assignment.names
        request = LockRequest(names, self._random.choice(names), ttl, is_renewed, self._patience())
        asked_at = _clock.now()
        try:
            held = CONTENDERS[self._assignment.kind](self._store, request, self._random)
        except (AcquireTimeout, LeaseLost, StoreUnavailable) as error:
            reason = {AcquireTimeout: "timeout", LeaseLost: "late"}.get(type(error), "unavailable")
            waited = _clock.now() - asked_at
            self._client.ask("miss", {"name": request.name, "reason": reason, "waited": waited})
            if reason == "unavailable":
                self._stop_asked.wait(self._random.uniform(0.0, ttl))
            return
        self._use(held, hold_s, asked_at)

    def _patience(self) -> float:
        roll = self._random.random()
        if roll < TRIES:
            return 0.0
        return IMPATIENT_SECONDS if roll < TRIES + IMPATIENT else PATIENT_SECONDS

    def _use(self, held: HeldLease, hold_s: float, asked_at: float) -> None:
        held_since = _clock.now()
        open_ones = []
        for name, token in held.tokens.items():
            waited = held_since - asked_at
            asked = AccessRequest(name, token, held.holder, held.mode, held_since, held.lease.trusted_until, waited)
            access = self._client.ask("enter", asdict(asked))["access"]
            if access is not None:
                open_ones.append(access)
        for step in range(2):
            self._stop_asked.wait(hold_s / 2)
            for access in open_ones:
                self._tell("write", access, held)
            if step == 0 and held.again is not None:
                self._enter_again(held, asked_at)
        for access in open_ones:
            self._tell("leave", access, held)
        with suppress(LeaseLost, StoreUnavailable, PartlyReleased):  # the lease expires on its own, or has expired
            held.lease.release()

    def _enter_again(self, held: HeldLease, asked_at: float) -> None:
        if held.again is None:
            return
        with suppress(AcquireTimeout, LeaseLost, StoreUnavailable):
            self._use(held.again(), 0.0, asked_at)

    def _tell(self, do: str, access: int, held: HeldLease) -> None:
        self._client.ask(do, {"access": access, "trusted_until": held.lease.trusted_until})


def main(line: str) -> int:
    """Run the assignment, and return the exit code."""
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
    return stack.enter_context(QuorumStore(stores, answer_timeout=ANSWER_TIMEOUT))


if __name__ == "__main__":
    sys.exit(main(sys.stdin.readline()))
