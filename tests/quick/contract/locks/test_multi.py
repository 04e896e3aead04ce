"""Several names at once, on every store and in both colours."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

from segmented import protocol as op
from segmented.clock import ManualClock
from segmented.errors import (
    AcquireTimeout,
    InvalidInput,
    LeaseLost,
    PartlyReleased,
    SegmentedError,
    StoreUnavailable,
    WrongKind,
)
from segmented.locks import MultiLock
from segmented.models import Held
from segmented.process import THIS
from segmented.stores.memory import MemoryStore
from tests.support.contract.bodies import fail_after
from tests.support.contract.locks.shared import LONG, new_names, room, several

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.locks import MultiLease
    from segmented.protocol import Operation
    from tests.fixtures.stores import Side


def take_away(side: Side, lease: MultiLease, name: str) -> None:
    """End the lease of one name on the server; its holder notices nothing."""
    side.execute(op.RenewLock(name, lease.holder_id, 1))
    side.pass_time(0.005)


# --- what it holds ---


def test_all_names_are_held_each_with_its_token_and_all_are_released(side: Side) -> None:
    names = new_names(side)
    lease = several(side, names).acquire(timeout=0)
    assert lease.names == tuple(names)
    assert list(lease.fencing_tokens) == names
    assert all(side.lock(name, ttl=LONG).try_acquire() is None for name in names)
    lease.release()
    for name in names:
        with side.lock(name, ttl=LONG).acquire(timeout=0) as single:
            assert single.fencing_token > lease.fencing_tokens[name]
    lease.release()


def test_a_try_takes_nothing_when_one_is_held(side: Side) -> None:
    names = new_names(side)
    held = side.lock(names[1], ttl=LONG).acquire(timeout=0)
    assert several(side, names).try_acquire() is None
    with pytest.raises(AcquireTimeout, match=f"^lock '{names[1]}' was not free within 0 s$"):
        several(side, names).acquire(timeout=0)
    for name in (names[0], names[2]):
        side.lock(name, ttl=LONG).acquire(timeout=0).release()
    held.release()


def test_without_contention_it_is_one_round_trip_each_way(plain_redis_side: Side) -> None:
    asked: list[list[str]] = []
    store = plain_redis_side.store
    real = store.execute_many

    def noted(operations: Sequence[Operation[Any]], *, deadline: float) -> list[Any]:
        asked.append([type(one).__name__ for one in operations])
        return real(operations, deadline=deadline)  # type: ignore[no-any-return]  # the store's own

    store.execute_many = noted
    several(plain_redis_side, new_names(plain_redis_side)).acquire(timeout=30).release()
    assert asked == [["AcquireLock"] * 3, ["ReleaseLock"] * 3]


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


def test_all_names_are_renewed_together(side: Side) -> None:
    names = new_names(side)
    lease = several(side, names, ttl=60).acquire(timeout=0)
    lease.renew(ttl=LONG)
    lease.require()
    for name in names:
        held = side.execute(op.AcquireLock(name, "other", 60_000))
        assert isinstance(held, Held)
        assert 500_000 < (held.free_in_ms or 0) <= 600_000
    lease.release()


def test_a8_the_bodys_own_error_is_not_hidden(side: Side) -> None:
    names = new_names(side)
    lease = several(side, names).acquire(timeout=0)
    with pytest.raises(ZeroDivisionError) as caught, lease:
        fail_after(lambda: take_away(side, lease, names[0]))
    assert caught.value.__notes__ == [f"and afterwards: lease on '{names[0]}' is lost: it lapsed or was taken away"]


# --- release that fails ---


class Flaky(MemoryStore):
    """Cannot be reached for operations on the names in `down`."""

    down: frozenset[str] = frozenset()

    def execute(self, operation: Operation[Any], *, deadline: float = 0.0) -> Any:  # noqa: ANN401  # its own answer
        if getattr(operation, "name", "") in self.down:
            raise StoreUnavailable
        return super().execute(operation, deadline=deadline)


def test_each_name_is_released_even_when_one_fails_and_that_one_can_be_tried_again() -> None:
    store = Flaky()
    lease = MultiLock(store, ["a", "b", "c"]).acquire(timeout=0)
    store.down = frozenset("b")
    with pytest.raises(PartlyReleased, match=r"^not released, release again or let the lease lapse: 'b': ") as caught:
        lease.release()
    assert list(caught.value.failures) == ["b"]
    assert isinstance(caught.value.failures["b"], StoreUnavailable)
    assert not lease.has_ended
    assert not lease.is_trusted
    store.down = frozenset()
    assert MultiLock(store, ["a", "c"]).try_acquire() is not None
    lease.release()
    assert lease.has_ended
    assert MultiLock(store, ["b"]).try_acquire() is not None


def test_failures_and_losses_are_told_together() -> None:
    clock = ManualClock()
    store = Flaky(clock=clock)
    lease = MultiLock(store, ["a", "b", "c"]).acquire(timeout=0)
    store.execute(op.RenewLock("a", lease.holder_id, 1))
    clock.advance(0.005)
    store.down = frozenset("b")
    with pytest.raises(PartlyReleased) as caught:
        lease.release()
    assert {name: type(failure) for name, failure in caught.value.failures.items()} == {
        "a": LeaseLost,
        "b": StoreUnavailable,
    }


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


def test_a_lease_stays_in_its_process_and_is_not_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    lease = MultiLock(MemoryStore(), ["a", "b"]).acquire(timeout=0)
    with pytest.raises(InvalidInput, match=r"^the lease on 'a, b' cannot be pickled"):
        pickle.dumps(lease)
    monkeypatch.setattr(THIS, "process_id", THIS.process_id + 1)  # as after a fork
    with pytest.raises(InvalidInput, match=r"^the lease on 'a, b' belongs to process"):
        lease.release()
    assert issubclass(PartlyReleased, SegmentedError)


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
