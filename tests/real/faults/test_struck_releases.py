"""An exception of a signal handler at any point of a release leaves no lock that nobody ends, and no waiter asleep."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from typing import Any, Final, Literal, get_args
from uuid import uuid4

import pytest
import redis

from segmented import Lock, Pool, RedisStore, ReentrantLock
from segmented.locks import MultiLock
from segmented.locks.lock import LockClaim
from segmented.servers import ValkeyServer
from tests.support.contract.parking import has_come_to_rest, lines_of, wait_until
from tests.support.long_run import in_the_long_run
from tests.support.striking import Striker, struck_everywhere

Kind = Literal[
    "lock",
    "reentrant lock",
    "multi-lock",
    "lock's block",
    "lease's block",
    "confirmed grant",
    "cancelled grant",
    "grant's block",
]
Waits = Literal["nobody", "its own process", "another process"]

STOCK: Final = 100_000
POINTS_MIN: Final = 60
SOON: Final = 100.0
LATER: Final = 600.0
"""Seconds for which leases live and waiters sleep, in these tests: all that is sooner is an event."""


class Interrupt(KeyboardInterrupt):
    """The exception that the handler of Ctrl-C raises."""


class TimeLimit(Exception):  # as Celery's SoftTimeLimitExceeded
    """The exception that a handler of another signal raises."""


class Bench:
    """A lock or a segment that one process holds; its release is struck, once for each point."""

    def __init__(self, url: str, kind: Kind, waits: Waits, error: type[BaseException]) -> None:
        self._kind, self._error = kind, error
        self._names = tuple(uuid4().hex for _ in range(2))  # a release that is repeated later reaches no other case
        self._client = redis.Redis.from_url(url, max_connections=2)  # one wire: a lost one would end all
        self.ours, self._theirs = RedisStore(self._client), RedisStore.from_url(url)
        self._waiting = {"nobody": None, "its own process": self.ours, "another process": self._theirs}[waits]
        self._locks: dict[RedisStore, Any] = {store: self._lock(store) for store in (self.ours, self._theirs)}
        self._kept: list[Any] = []  # so that no finalizer is struck
        if kind.endswith("grant") or kind.startswith("grant"):
            Pool(self._theirs, self._names[0]).open(stock=STOCK, segments=1)

    def close(self) -> None:
        self.ours.close()
        self._theirs.close()
        self._client.close()

    def _lock(self, store: RedisStore) -> Any:  # noqa: ANN401  # a lock of some kind, or a pool
        match self._kind:
            case "lock" | "lock's block" | "lease's block":
                return Lock(store, self._names[0], ttl=LATER)
            case "reentrant lock":
                return ReentrantLock(store, self._names[0], ttl=LATER)
            case "multi-lock":
                return MultiLock(store, self._names, ttl=LATER)
            case _:
                return Pool(store, self._names[0], ttl=LATER, hold=LATER)

    def _taken(self, store: RedisStore) -> Any:  # noqa: ANN401  # a lease or a grant
        lock = self._locks[store]
        if isinstance(lock, Pool):
            return lock.grant(uuid4().hex, timeout=SOON)
        return lock.acquire(timeout=SOON)

    def _release_of(self) -> Callable[[], object]:
        """Take the lock, and return what is to be struck."""
        if self._kind == "lock's block":
            lock = self._locks[self.ours]
            self._kept.append(lock.__enter__())
            return lambda: lock.__exit__(None, None, None)
        taken = self._taken(self.ours)
        self._kept.append(taken)
        match self._kind:
            case "confirmed grant":
                return taken.confirm  # type: ignore[no-any-return]  # of a lease or a grant
            case "cancelled grant":
                return taken.cancel  # type: ignore[no-any-return]  # of a lease or a grant
            case "grant's block" | "lease's block":
                taken.__enter__()
                return lambda: taken.__exit__(None, None, None)
            case _:
                return taken.release  # type: ignore[no-any-return]  # of a lease or a grant

    def strike(self, at: int) -> tuple[str, list[str]]:
        """Strike a release at a point; return the place, or nothing if it has fewer points, and what is wrong after."""
        release = self._release_of()
        striker = Striker(at, __file__, called=True, error=self._error)
        wrong = []
        with ThreadPoolExecutor(1) as helper:
            next_one = None
            if self._waiting is not None:
                next_one = helper.submit(self._taken, self._waiting)
                waiting = self._waiting
                wait_until(lambda: has_come_to_rest(waiting, 1), seconds=SOON)
            with suppress(self._error), striker:
                release()
            if next_one is None:
                next_one = helper.submit(self._taken, self._theirs)
            try:
                taken = next_one.result()
            except Exception as failure:  # noqa: BLE001  # told with the place
                wrong.append(repr(failure))
            else:
                (taken.cancel if hasattr(taken, "cancel") else taken.release)()
        if self._kind == "grant's block":  # its body has run
            record = self._locks[self._theirs].order(self._kept[-1].order_id)
            wrong += [f"the order is {record.state}"] if record.state != "confirmed" else []
        wrong += [f"{len(line)} in the queue" for line in lines_of(self.ours).values()]
        return striker.where, wrong


REAL: Final = [
    ("lock", "nobody", TimeLimit),
    ("lock", "its own process", TimeLimit),
    ("grant's block", "another process", Interrupt),
]
FURTHER: Final = [case for case in product(get_args(Kind), get_args(Waits), (Interrupt, TimeLimit)) if case not in REAL]


def listeners() -> list[threading.Thread]:
    """Return the threads of all stores that listen; those of other tests may be among them."""
    return [thread for thread in threading.enumerate() if thread.name == "segmented-listener"]


@pytest.mark.parametrize(
    ("kind", "waits", "error"),
    [*REAL, *in_the_long_run(*FURTHER)],
)
def test_an_exception_at_any_point_of_a_release_leaves_the_lock_to_the_next_one(
    valkey: ValkeyServer, kind: Kind, waits: Waits, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segmented.plans.line.AHEAD_SECONDS", LATER)
    monkeypatch.setattr("segmented.plans.waiting.LOOK_SECONDS", LATER)
    monkeypatch.setattr("segmented.stock.plans.GONE_SECONDS", LATER)
    monkeypatch.setattr(LockClaim, "look_seconds", LATER)
    before = listeners()
    bench = Bench(valkey.url, kind, waits, error)
    at, left = struck_everywhere(bench.strike)
    bench.close()
    assert left == {}
    assert at > POINTS_MIN
    wait_until(lambda: not [thread for thread in listeners() if thread not in before], seconds=SOON)
