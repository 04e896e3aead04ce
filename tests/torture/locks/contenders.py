"""A process of contenders: threads that take locks, and a thread whose asyncio tasks do.

It stops taking locks when the supervisor asks it to.
"""

import asyncio
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, Final

import redis

from segmented.clock import SystemClock
from segmented.plans.drivers import Store
from segmented.stores.quorum import QuorumStore
from tests.torture.locks.resource import ResourceClient, ServerGone
from tests.torture.locks.rounds import (
    NOT_ACQUIRED,
    NOT_RELEASED,
    Assignment,
    ContendedLock,
    draw_round,
    lock_of,
    reason_of,
)
from tests.torture.locks.servers import called, connections_of
from tests.torture.locks.tasks import contend
from tests.torture.supervisor import connected, crash, wait_for_end

CLOSED_SECONDS: Final = 30.0
"""Seconds for a server to notice that connections were closed."""
LOOK_SECONDS: Final = 0.05
ANSWER_TIMEOUT: Final = 0.2
"""Seconds that a quorum lock waits for a server: several processes share few cores."""

_clock = SystemClock()


class Contender(threading.Thread):
    """A thread that takes locks until it is asked to stop."""

    def __init__(self, assignment: Assignment, index: int, store: Store, stop: threading.Event) -> None:
        """Create thread number `index` of the process."""
        super().__init__(daemon=True)
        self._assignment = assignment
        self._random = assignment.random(str(index))
        self._store = store
        self._stop_asked = stop
        self._client = ResourceClient(assignment.socket_path, assignment.process)

    def run(self) -> None:
        """Take locks. An error that no injected fault explains ends the process, so that the supervisor notices."""
        try:
            while not self._stop_asked.is_set():
                self._round()
        except ServerGone:
            self._stop_asked.set()
        except Exception:  # noqa: BLE001  # the supervisor must notice any error
            crash()

    def _round(self) -> None:
        drawn = draw_round(self._random, self._assignment)
        lock = lock_of(self._assignment.options.kind, self._store, drawn, self._random, in_task=False)
        asked_at = _clock.now()
        try:
            lease = lock.acquire()
        except NOT_ACQUIRED as error:
            reason = reason_of(error)
            self._client.miss(drawn.name, reason, _clock.now() - asked_at)
            if reason == "unavailable":
                self._stop_asked.wait(self._random.uniform(0.0, drawn.ttl))
            return
        self._use(lock, lease, drawn.hold_s, asked_at)

    def _use(self, lock: ContendedLock, lease: Any, hold_s: float, asked_at: float, *, is_again: bool = False) -> None:  # noqa: ANN401  # leases of several kinds
        accesses = self._client.enter(lock.requests(lease, now=_clock.now(), asked_at=asked_at))
        for step in range(2):
            self._stop_asked.wait(hold_s / 2)
            self._client.tell("write", accesses, lease)
            if step == 0 and lock.is_entered_again and not is_again:
                with suppress(*NOT_ACQUIRED):
                    self._use(lock, lock.acquire(), 0.0, asked_at, is_again=True)
        self._client.tell("leave", accesses, lease)
        with suppress(*NOT_RELEASED):
            lease.release()


class TaskThread(threading.Thread):
    """A thread with an event loop, in which tasks take locks until they are asked to stop."""

    def __init__(self, assignment: Assignment, stop: threading.Event) -> None:
        """Create the thread of the process's tasks."""
        super().__init__(daemon=True)
        self._assignment = assignment
        self._stop_asked = stop
        self.tasks_left = 0

    def run(self) -> None:
        """Let tasks take locks, and count those that are left at the end."""
        try:
            self.tasks_left = asyncio.run(contend(self._assignment, self._stop_asked, ANSWER_TIMEOUT))
        except BaseException:  # noqa: BLE001  # the supervisor must notice any error
            crash()


def be_contender(pipe: Connection, assignment: Assignment) -> None:
    """Take locks until the supervisor asks for the end, and count what is left. First it sends the process's number."""
    assignment = replace(assignment, process=pipe.recv())
    stop = threading.Event()
    of_tasks = TaskThread(assignment, stop)
    with ExitStack() as stack:
        store = _store(assignment, stack)
        threads: list[threading.Thread] = [
            Contender(assignment, index, store, stop) for index in range(assignment.options.threads)
        ]
        if assignment.options.tasks:
            threads.append(of_tasks)
        for thread in threads:
            thread.start()
        wait_for_end(pipe)
        stop.set()
        for thread in threads:
            thread.join()
    client = ResourceClient(assignment.socket_path, assignment.process)
    with suppress(ServerGone):
        client.finished(tasks=of_tasks.tasks_left, connections=_connections_left(assignment))


def _connections_left(assignment: Assignment) -> int:
    """Count this process's connections that the servers still list; they notice closed ones a little later."""
    with ExitStack() as stack:
        clients = [stack.enter_context(redis.Redis.from_url(url)) for url in assignment.urls]
        until = _clock.now() + CLOSED_SECONDS
        while True:
            found = sum(len(connections_of(client, assignment.client_name)) for client in clients)
            if not found or _clock.now() >= until:
                return found
            time.sleep(LOOK_SECONDS)


def _store(assignment: Assignment, stack: ExitStack) -> Store:
    stores = [stack.enter_context(connected(called(url, assignment.client_name))) for url in assignment.urls]
    if len(stores) == 1:
        return stores[0]
    return stack.enter_context(QuorumStore(stores, answer_timeout=ANSWER_TIMEOUT))
