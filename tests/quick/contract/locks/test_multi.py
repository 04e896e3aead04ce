"""Several names at once, on every store and in both colours."""

import asyncio
from typing import Any

import pytest

from segmented import AsyncLock, Lock, protocol as op
from segmented.clock import ManualClock
from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost, StoreUnavailable, WrongKind
from segmented.locks import AsyncMultiLock, MultiLease, MultiLock
from segmented.protocol import Operation
from segmented.stores.memory import AsyncMemoryStore, MemoryStore
from tests.fixtures.stores import Side
from tests.support.contract.locks.shared import LONG, new_names, room, several


def take_away(side: Side, lease: MultiLease, name: str) -> None:
    """End the lease of one name on the server; its holder notices nothing."""
    side.execute(op.RenewLock(name, lease.holder_id, 1))
    side.pass_time(0.005)


# --- trust ---


def test_it_is_trusted_until_the_earliest_end(side: Side) -> None:
    names = new_names(side)
    lease = several(side, names, ttl=100).acquire(timeout=0)
    assert 80 < lease.remaining() <= 99
    before = lease.trusted_until
    lease.renew(ttl=200)
    assert lease.trusted_until > before + 90
    lease.require()
    lease.release()
    assert not lease.is_trusted
    assert lease.remaining() == 0
    assert lease.has_ended


# --- release that fails ---


class Flaky(MemoryStore):
    """Cannot be reached for operations on the names in `down`."""

    down: frozenset[str] = frozenset()

    def execute(self, operation: Operation[Any], *, deadline: float = 0.0) -> Any:  # noqa: ANN401  # its own answer
        if getattr(operation, "name", "") in self.down:
            raise StoreUnavailable
        return super().execute(operation, deadline=deadline)


def test_a6_when_the_server_is_gone_that_is_raised_and_the_release_can_be_repeated() -> None:
    store = Flaky()
    lease = MultiLock(store, ["a", "b"]).acquire(timeout=0)
    store.down = frozenset("ab")
    with pytest.raises(StoreUnavailable):
        lease.release()
    store.down = frozenset()
    lease.release()
    assert MultiLock(store, ["a", "b"]).try_acquire() is not None


def test_a_renewal_that_fails_for_one_name_is_raised_and_the_lease_lives_on() -> None:
    clock = ManualClock()
    store = Flaky(clock=clock)
    lease = MultiLock(store, ["a", "b"], ttl=10).acquire(timeout=0)
    clock.advance(5)
    store.down = frozenset("b")
    with pytest.raises(StoreUnavailable):
        lease.renew()
    assert 4 < lease.remaining() < 5
    assert lease.trusted_until == clock.now() + lease.remaining()
    store.down = frozenset()
    lease.renew()
    assert 9 < lease.remaining() < 10


class SlowStore(MemoryStore):
    """A server that answers each attempt to acquire a name after a second."""

    def execute(self, operation: Operation[Any], *, deadline: float = 0.0) -> Any:  # noqa: ANN401  # its own answer
        answer = super().execute(operation, deadline=deadline)
        if isinstance(operation, op.AcquireLock):
            self.clock.advance(1.0)  # type: ignore[attr-defined]  # a manual clock
        return answer


def test_b4_answers_that_take_longer_than_the_lease_are_a_loss_and_all_is_given_back() -> None:
    store = SlowStore(clock=ManualClock())
    with pytest.raises(LeaseLost):
        MultiLock(store, ["a", "b", "c"], ttl=3).acquire(timeout=10)
    assert [Lock(store, name).is_locked() for name in "abc"] == [False] * 3


@pytest.mark.parametrize("timeout", [0, 0.5])
def test_an_attempt_that_does_not_get_all_names_leaves_none_taken(timeout: float) -> None:
    store = MemoryStore(clock=ManualClock(auto=True))
    Lock(store, "b").acquire()
    with pytest.raises(AcquireTimeout, match="lock 'b' was not free within"):
        MultiLock(store, ["a", "b", "c"]).acquire(timeout=timeout)
    assert [Lock(store, name).is_locked() for name in "abc"] == [False, True, False]


def test_a_wait_that_is_cancelled_gives_back_what_it_held() -> None:
    async def run() -> list[bool]:
        store = AsyncMemoryStore()
        await AsyncLock(store, "c").acquire()
        waiting = asyncio.create_task(AsyncMultiLock(store, ["a", "b", "c"]).acquire(timeout=60))
        for _ in range(20):  # it is at its wait for the last name
            await asyncio.sleep(0)
        assert await AsyncLock(store, "b").is_locked()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return [await AsyncLock(store, name).is_locked() for name in "abc"]

    assert asyncio.run(run()) == [False, False, True]


def test_a_name_of_another_kind_is_refused_and_the_others_are_given_back(side: Side) -> None:
    names = new_names(side)
    with room(side, names[1], permits=2).acquire(timeout=0), pytest.raises(WrongKind):
        several(side, names).acquire(timeout=30)
    for name in names:
        side.lock(name, ttl=LONG).acquire(timeout=0).release()


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ([], "^a multi-lock needs at least one name$"),
        ("abc", "^the names of a multi-lock are several texts, not one: 'abc'$"),
        (["a", ""], "^a lock needs a name$"),
        (["a", b"b"], "^the name of a lock is a text, not bytes: b'b'$"),
    ],
)
def test_what_are_no_names_is_refused_at_once(names: Any, sentence: str) -> None:  # noqa: ANN401  # wrong on purpose
    with pytest.raises(InvalidInput, match=sentence):
        MultiLock(MemoryStore(), names)


def test_it_is_lost_when_one_name_is(side: Side) -> None:
    names = new_names(side)
    lease = several(side, names).acquire(timeout=0)
    take_away(side, lease, names[1])
    assert not lease.is_lost
    with pytest.raises(LeaseLost, match=f"^lease on '{names[1]}' is lost"):
        lease.renew()
    assert lease.is_lost
    with pytest.raises(LeaseLost, match=f"^lease on '{names[1]}' is lost"):
        lease.require()
    with pytest.raises(LeaseLost, match=f"^lease on '{names[1]}' is lost"):
        lease.release()
    for name in names:
        side.lock(name, ttl=LONG).acquire(timeout=0).release()
