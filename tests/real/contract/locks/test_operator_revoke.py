"""An operator revokes locks of every kind: who waits is woken, who held is told. A10 is a row of the catalogue."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from segmented import protocol as op
from segmented.errors import LeaseLost
from segmented.keys import lock_keys, operator_keys
from segmented.locks import (
    AsyncFairLock,
    AsyncLock,
    AsyncReadWriteLock,
    AsyncReentrantLock,
    AsyncSemaphore,
    FairLock,
    Lock,
    ReadWriteLock,
    ReentrantLock,
    Semaphore,
)
from segmented.locks.lock import LockClaim
from segmented.models import Acquired, Lost, Released
from segmented.models.locks import Revoked
from tests.real.contract.locks.test_fair_waiting import SLOW, let_times_be
from tests.support.contract.locks.kinds import LONG_MS, Use
from tests.support.contract.locks.operator_kinds import HOLDER, OTHER, each_kind, held, revoked, shown
from tests.support.contract.parking import has_come_to_rest, wait_until

if TYPE_CHECKING:
    from tests.fixtures.stores import Side

LONG: Final = 600.0
SOON: Final = 30.0


@pytest.fixture(autouse=True)
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but a message wakes a waiter in time, and no hand-over lapses."""
    let_times_be(SLOW, monkeypatch)
    monkeypatch.setattr("segmented.locks.read_write.PRESENCE_MS_MAX", 600_000)
    monkeypatch.setattr(LockClaim, "look_seconds", 600.0)


def test_revoking_a_free_lock_is_nothing(side: Side) -> None:
    assert revoked(side, side.name()) is None


@each_kind
def test_a10_after_a_revoke_another_holds_and_the_old_holder_is_told(side: Side, kind: Use) -> None:
    name = side.name()
    first = side.execute(kind.acquire(name, HOLDER))
    token = first.fencing_token if kind.record.has_token else None
    assert revoked(side, name) == Revoked(kind.kind, token)
    assert shown(side, name) is None
    assert isinstance(side.execute(kind.renew(name, HOLDER)), Lost)

    second = side.execute(kind.acquire(name, OTHER))
    assert isinstance(second, Acquired)
    assert not second.replay
    assert second.fencing_token > first.fencing_token or not kind.record.has_token
    assert isinstance(side.execute(kind.release(name, HOLDER)), Lost)
    assert isinstance(side.execute(kind.renew(name, HOLDER)), Lost)
    assert held(side, name).holder_count == 1
    assert side.execute(kind.release(name, OTHER)) == Released()


def test_a_revoke_ends_all_who_share_a_lock(side: Side) -> None:
    shared, permits = side.name(), side.name()
    for me in ("a", "b", "c"):
        side.execute(op.AcquireRead(shared, me, LONG_MS))
        side.execute(op.AcquirePermit(permits, me, LONG_MS, 3))
    assert revoked(side, shared) is not None
    assert revoked(side, permits) is not None
    for me in ("a", "b", "c"):
        assert isinstance(side.execute(op.ReleaseReadWrite(shared, me)), Lost)
        assert isinstance(side.execute(op.ReleasePermit(permits, me)), Lost)
    assert isinstance(side.execute(op.AcquireWrite(shared, "w", LONG_MS)), Acquired)


def test_a_revoke_ends_a_lock_delay(side: Side) -> None:
    name = side.name()
    side.execute(op.AcquireLock(name, HOLDER, 20, LONG_MS))
    side.pass_time(0.03)
    assert held(side, name).is_delayed
    assert revoked(side, name) is not None
    assert isinstance(side.execute(op.AcquireLock(name, OTHER, LONG_MS)), Acquired)


@each_kind
def test_a_revoke_that_is_sent_twice_ends_nothing_that_began_since(side: Side, kind: Use) -> None:
    name = side.name()
    side.execute(kind.acquire(name, HOLDER))
    first = side.execute(op.RevokeLock(name, "once"))
    assert first is not None
    side.execute(kind.acquire(name, OTHER))
    assert side.execute(op.RevokeLock(name, "once")) == first
    assert held(side, name).holder_count == 1
    again = side.execute(op.RevokeLock(name, "anew"))
    assert again is not None
    assert again.kind == first.kind
    assert shown(side, name) is None


@each_kind
def test_every_key_that_a_revoke_leaves_has_an_end(redis_side: Side, kind: Use) -> None:
    name = redis_side.name()
    redis_side.execute(kind.acquire(name, HOLDER))
    revoked(redis_side, name)
    server = redis_side.raw()
    left = [key for key in operator_keys(name).listed() if server.exists(key)]
    assert left == [lock_keys(name).fence]
    assert server.pttl(left[0]) > LONG_MS


MAKERS: Final[dict[str, tuple[Any, Any]]] = {
    "lock": (lambda store, name: Lock(store, name, ttl=LONG), lambda store, name: AsyncLock(store, name, ttl=LONG)),
    "reentrant": (
        lambda store, name: ReentrantLock(store, name, owner="me", ttl=LONG, renew=False),
        lambda store, name: AsyncReentrantLock(store, name, owner="me", ttl=LONG, renew=False),
    ),
    "fair": (
        lambda store, name: FairLock(store, name, ttl=LONG),
        lambda store, name: AsyncFairLock(store, name, ttl=LONG),
    ),
    "read": (
        lambda store, name: ReadWriteLock(store, name, ttl=LONG).read,
        lambda store, name: AsyncReadWriteLock(store, name, ttl=LONG).read,
    ),
    "write": (
        lambda store, name: ReadWriteLock(store, name, ttl=LONG).write,
        lambda store, name: AsyncReadWriteLock(store, name, ttl=LONG).write,
    ),
    "semaphore": (
        lambda store, name: Semaphore(store, name, permits=1, ttl=LONG),
        lambda store, name: AsyncSemaphore(store, name, permits=1, ttl=LONG),
    ),
}
RIVALS: Final = {"read": "write", "write": "read"}


def handle(side: Side, word: str, name: str) -> Any:  # noqa: ANN401  # a lock of any kind
    sync, asynchronous = MAKERS[word]
    return side.made(lambda store: sync(store, name), lambda store: asynchronous(store, name))


@pytest.mark.parametrize("word", MAKERS)
def test_a_revoke_wakes_who_waits_and_the_old_lease_says_lost(waiting_side: Side, word: str) -> None:
    side, name = waiting_side, waiting_side.name()
    rival = RIVALS.get(word, word)
    lease = handle(side, word, name).acquire(timeout=SOON)
    if word == "reentrant":
        sync, asynchronous = ReentrantLock, AsyncReentrantLock
        waiter: Any = side.made(
            lambda store: sync(store, name, owner="you", ttl=LONG, renew=False),
            lambda store: asynchronous(store, name, owner="you", ttl=LONG, renew=False),
        )
    else:
        waiter = handle(side, rival, name)
    waiting = side.start(lambda: waiter.acquire(timeout=LONG))
    wait_until(lambda: has_come_to_rest(side.store, 1))
    assert revoked(side, name) is not None
    got = waiting.result(SOON)  # far sooner than the lease's end, or a fair waiter's next look
    with pytest.raises(LeaseLost):
        lease.release()
    assert held(side, name).holder_count == 1
    got.release()
    assert shown(side, name) is None


def test_the_queue_of_a_fair_lock_keeps_its_order_through_a_revoke(waiting_side: Side) -> None:
    side, name = waiting_side, waiting_side.name()
    order: list[int] = []
    first = handle(side, "fair", name).acquire(timeout=SOON)

    def wait_in_line(number: int) -> None:
        with handle(side, "fair", name).acquire(timeout=LONG):
            order.append(number)

    waiting = []
    for number in range(4):
        waiting.append(side.start(partial(wait_in_line, number)))
        wait_until(lambda: has_come_to_rest(side.store, len(waiting)))
    revoked(side, name)
    for one in waiting:
        one.result(SOON)
    assert order == [0, 1, 2, 3]
    with pytest.raises(LeaseLost):
        first.release()
