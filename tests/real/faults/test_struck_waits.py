"""An exception of a signal handler at any point of a wait leaves no ghost: in no queue, in no line, and no lock."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Literal
from uuid import uuid4

import pytest

from segmented import AcquireTimeout, Busy, Lock, Pool, RedisStore
from segmented.keys import lock_keys, shard_keys
from segmented.locks.lock import LockClaim
from segmented.servers import ValkeyServer
from tests.support.contract.parking import has_come_to_rest, lines_of, wait_until
from tests.support.striking import Striker, Struck, struck_everywhere

Kind = Literal["lock", "grant"]
Ends = Literal["gives up", "freed by another process", "freed by its own process"]

STOCK = 100_000
POINTS_MIN = 300
SOON = 100.0
LATER = 600.0
"""Seconds until a waiter checks again on its own, in these tests."""


class Bench:
    """One lock or segment of two processes; a waiter of the first one is struck, once for each point."""

    def __init__(self, url: str, kind: Kind, ends: Ends) -> None:
        self._kind, self._ends = kind, ends
        self._ours, self._theirs = RedisStore.from_url(url), RedisStore.from_url(url)
        self._pool = shard_keys("struck")
        Pool(self._theirs, "struck").open(stock=STOCK, segments=1)
        self._holding = self._ours if ends == "freed by its own process" else self._theirs
        self._held = self._of(self._holding)(timeout=0)

    def close(self) -> None:
        self._give_back(self._held)
        self._ours.close()
        self._theirs.close()

    def _of(self, store: RedisStore) -> Callable[..., Any]:
        if self._kind == "lock":
            return Lock(store, "struck", ttl=600).acquire
        pool, order = Pool(store, "struck", ttl=600, hold=900), uuid4().hex
        return lambda timeout: pool.grant(order, timeout=timeout)

    def _give_back(self, taken: Any) -> None:  # noqa: ANN401  # a lease or a grant
        (taken.release if self._kind == "lock" else taken.cancel)()

    def strike(self, at: int) -> tuple[str, list[str]]:
        """Strike a waiter at a point; return the place, or nothing if the wait is shorter, and what is wrong after."""
        is_over, freed = threading.Event(), threading.Event()
        with ThreadPoolExecutor(1) as helper:
            if self._ends != "gives up":
                helper.submit(self._free_for_waiter, is_over, freed)
            taken, take = None, self._of(self._ours)
            striker = Striker(at, __file__)
            with suppress(Struck, AcquireTimeout), striker:
                taken = take(timeout=0.01 if self._ends == "gives up" else SOON)
            is_over.set()
        wrong = [f"{len(line)} in the queue" for line in lines_of(self._ours).values()]
        if taken is not None and not isinstance(taken, Busy):
            self._give_back(taken)
        wrong += ["still held"] * (freed.is_set() and not self._is_free())
        if freed.is_set():
            self._held = self._of(self._holding)(timeout=SOON)
        return striker.where, wrong + self._next_one()

    def _free_for_waiter(self, is_over: threading.Event, freed: threading.Event) -> None:
        wait_until(lambda: is_over.is_set() or has_come_to_rest(self._ours, 1), seconds=SOON)
        if not is_over.is_set():
            freed.set()
            self._give_back(self._held)

    def _is_free(self) -> bool:
        if self._kind == "lock":
            return not Lock(self._theirs, "struck").is_locked()
        return Pool(self._theirs, "struck").state().available == STOCK

    def _next_one(self) -> list[str]:
        """Free it for the next waiter of the process; return what is wrong."""
        keys = lock_keys("struck") if self._kind == "lock" else self._pool
        waiting = self._theirs.client.zcard(keys.line)
        with ThreadPoolExecutor(1) as helper:
            waiter = helper.submit(self._of(self._ours), timeout=SOON)
            wait_until(lambda: waiter.done() or has_come_to_rest(self._ours, 1), seconds=SOON)
            self._give_back(self._held)
            try:
                taken = waiter.result()
            except AcquireTimeout:
                taken = None
        if taken is not None and not isinstance(taken, Busy):
            self._give_back(taken)
        wrong = ["its successor was not woken"] * (taken is None or isinstance(taken, Busy))
        self._held = self._of(self._holding)(timeout=0)
        return wrong + [f"{waiting} processes in the line"] * (waiting != 0)


@pytest.mark.long
@pytest.mark.parametrize("ends", ["gives up", "freed by another process", "freed by its own process"])
@pytest.mark.parametrize("kind", ["lock", "grant"])
def test_an_exception_at_any_point_of_a_wait_leaves_nothing_behind(
    valkey: ValkeyServer, kind: Kind, ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segmented.plans.line.AHEAD_SECONDS", LATER)
    monkeypatch.setattr("segmented.stock.plans.GONE_SECONDS", LATER)
    monkeypatch.setattr(LockClaim, "look_seconds", LATER)
    bench = Bench(valkey.url, kind, ends)
    at, ghosts = struck_everywhere(bench.strike)
    bench.close()
    assert ghosts == {}
    assert at > POINTS_MIN
