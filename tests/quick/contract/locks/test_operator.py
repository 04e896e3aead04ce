"""An operator looks at locks of every kind, and lists them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from segmented import protocol as op
from segmented.clock import ManualClock
from segmented.errors import InvalidInput, SegmentedError, WrongKind
from segmented.keys import lock_keys, lock_name, operator_keys
from segmented.locks.fair import TIMES
from segmented.locks.operator import list_plan
from segmented.models import Acquired, Lost, Released
from segmented.models.locks import LockHolder, LockState, Revoked
from tests.support.contract.locks.kinds import LONG_MS, Use
from tests.support.contract.locks.operator_kinds import HOLDER, KINDS, OTHER, each_kind, held, revoked, shown
from tests.support.contract.parking import has_come_to_rest, wait_until

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


LONG: Final = 60.0
PATIENCE: Final = 15.0


def timeless(state: LockState, *, life_ms: int = LONG_MS) -> LockState:
    """Check that every time is just below `life_ms`, and take it out, with what only a server can count."""
    assert state.free_in_ms is not None
    assert life_ms - PATIENCE * 1000 < state.free_in_ms <= life_ms
    for holder in state.holders:
        assert holder.remaining_ms is not None
        assert life_ms - PATIENCE * 1000 < holder.remaining_ms <= life_ms
    holders = tuple(replace(holder, remaining_ms=None) for holder in state.holders)
    assert state.held_ms is None or 0 <= state.held_ms < PATIENCE * 1000
    return replace(state, holders=holders, free_in_ms=None, listeners=None, held_ms=None)


# --- show ---


def test_a_free_lock_shows_nothing(side: Side) -> None:
    assert shown(side, side.name()) is None


@each_kind
def test_a_lock_of_any_kind_shows_its_holder(side: Side, kind: Use) -> None:
    name = side.name()
    acquired = side.execute(kind.acquire(name, HOLDER))
    holder = LockHolder(
        "" if kind.names_owner else HOLDER[:8],
        kind.mode,
        None,
        owner=f"owner {HOLDER}" if kind.names_owner else None,
    )
    assert timeless(held(side, name)) == LockState(
        name=name,
        kind=kind.kind,
        holders=(holder,),
        holder_count=1,
        free_in_ms=None,
        fencing_token=acquired.fencing_token if kind.record.has_token else None,
        permits=1 if kind.mode == "permit" else None,
        waiters=0 if kind.record.counts_waiters else None,
    )
    side.execute(kind.release(name, HOLDER))
    assert shown(side, name) is None


def test_an_owner_is_shown_with_the_number_of_its_entries(side: Side) -> None:
    name = side.name()
    for holder_id in ("a1", "a2", "a3"):
        side.execute(op.AcquireReentrant(name, "mode", holder_id, LONG_MS))
    assert timeless(held(side, name)).holders == (LockHolder("", "exclusive", None, owner="mode", count=3),)


def test_permits_are_shown_in_the_order_of_their_ends_and_counted_beyond_the_bound(side: Side) -> None:
    name = side.name()
    for holder_id, ttl_ms in (("last", 300_000), ("first", 100_000), ("second", 200_000)):
        side.execute(op.AcquirePermit(name, holder_id, ttl_ms, 5))
    state = held(side, name)
    assert [holder.holder_id_start for holder in state.holders] == ["first", "second", "last"]
    assert (state.permits, state.holder_count) == (5, 3)
    few = shown(side, name, holders_max=2)
    assert few is not None
    assert [holder.holder_id_start for holder in few.holders] == ["first", "second"]
    assert few.holder_count == 3


def test_a_lock_delay_is_told_apart_from_a_holder(side: Side) -> None:
    name = side.name()
    side.execute(op.AcquireLock(name, HOLDER, 30_000, LONG_MS))
    before = held(side, name)
    assert (before.is_delayed, len(before.holders)) == (False, 1)
    assert (before.holders[0].remaining_ms or 0) <= 30_000
    side.execute(op.RenewLock(name, HOLDER, 40, LONG_MS))
    side.pass_time(0.05)
    after = held(side, name)
    assert (after.is_delayed, after.holders, after.holder_count) == (True, (), 0)
    assert (after.free_in_ms or 0) > LONG_MS - PATIENCE * 1000


def test_those_in_the_queue_of_a_fair_lock_and_waiting_writers_are_counted(side: Side) -> None:
    fair, shared = side.name(), side.name()
    for me in ("a", "b", "c"):
        side.execute(op.AcquireFair(fair, me, f"process of {me}", LONG_MS, TIMES))
        side.execute(op.AcquireWrite(shared, me, LONG_MS, LONG_MS))
    assert (held(side, fair).waiters, held(side, shared).waiters) == (2, 2)
    side.execute(op.ReleaseFair(fair, "a", TIMES))
    assert held(side, fair).waiters == 1  # b was handed it and has not come: it waits for nobody


def test_the_historical_lock_shows_no_end(side: Side) -> None:
    name = side.name()
    side.execute(op.SetNx(name, "1700000000.000000"))
    expected = LockState(name, "get_set", (LockHolder("17000000", "exclusive", None),), 1, None, None)
    assert held(side, name) == expected
    assert revoked(side, name) == Revoked("get_set", None)
    assert side.execute(op.GetValue(name)) == ""


def test_processes_that_listen_are_counted(redis_side: Side) -> None:
    name = redis_side.name()
    with redis_side.lock(name, ttl=LONG).acquire():
        assert held(redis_side, name).listeners == 0
        waiting = redis_side.start(lambda: redis_side.lock(name, ttl=LONG).acquire(timeout=PATIENCE))
        wait_until(lambda: has_come_to_rest(redis_side.store, 1))
        assert held(redis_side, name).listeners == 1
    waiting.result(PATIENCE).release()


def test_the_key_of_another_client_is_shown_as_a_plain_lock(redis_side: Side) -> None:
    name = redis_side.name()
    redis_side.raw().set(lock_keys(name).lock, "théirs\x1b[2J", px=LONG_MS)
    state = held(redis_side, name)
    assert (state.kind, state.fencing_token) == ("lock", None)
    assert state.holders[0].holder_id_start == "th??irs?"
    assert revoked(redis_side, name) == Revoked("lock", None)


@pytest.mark.parametrize("command", [("LPUSH", "x"), ("SADD", "x"), ("HSET", "field", "x"), ("XADD", "*", "f", "x")])
def test_a_key_that_is_no_lock_is_refused_and_left_alone(redis_side: Side, command: tuple[str, ...]) -> None:
    name = redis_side.name()
    key, server = lock_keys(name).lock, redis_side.raw()
    server.execute_command(command[0], key, *command[1:])
    for ask in (shown, revoked):
        with pytest.raises(WrongKind, match=f"'{name}' holds other data"):
            ask(redis_side, name)
    assert server.exists(key) == 1


def test_a_name_that_no_lock_has_is_refused(side: Side) -> None:
    for name in ["", "a\nb", "x" * 2_000]:
        for ask in (shown, revoked):
            with pytest.raises(InvalidInput):
                ask(side, name)


# --- list ---


def test_the_names_of_held_locks_of_every_kind_are_listed(side: Side) -> None:
    word = side.name("{odd}%7D name:")
    names = sorted(f"{word}-{number}" for number in range(len(KINDS)))
    for name, kind in zip(names, KINDS, strict=True):
        side.execute(kind.acquire(name, HOLDER))
    side.execute(op.AcquireLock(f"{word}-free", HOLDER, LONG_MS))
    side.execute(op.ReleaseLock(f"{word}-free", HOLDER))
    found = side.run(list_plan(f"{word}*"))
    assert (list(found.names), found.is_complete) == (names, True)
    few = side.run(list_plan(f"{word}*", 3))
    assert (len(few.names), few.is_complete) == (3, False)


def test_a_pattern_means_the_same_everywhere(side: Side) -> None:
    word = side.name()
    for name in ("ab", "abb", "a*", "a]"):
        side.execute(op.AcquireLock(f"{word}/{name}", HOLDER, LONG_MS))
    meant = {
        "a?": ["ab", "a*", "a]"],
        "a[bc]": ["ab"],
        "a[^b]": ["a*", "a]"],
        "a\\*": ["a*"],
        "*b": ["ab", "abb"],
        "ab": ["ab"],
        "b": [],
    }
    for match, names in meant.items():
        assert list(side.run(list_plan(f"{word}/{match}")).names) == sorted(f"{word}/{name}" for name in names)


@pytest.mark.parametrize("name", ["plain", "{odd}", "%7D", "a}:fence", "{" * 3 + "%25"])
def test_of_all_keys_of_a_lock_the_main_one_alone_tells_its_name(name: str) -> None:
    main, *companions = operator_keys(name).listed()
    assert lock_name(main) == name
    assert [lock_name(key) for key in companions] == [None] * 10


@pytest.mark.parametrize(("match", "names_max"), [("", 1), ("*", 0), ("*", True), ("*", 1.5)])
def test_what_cannot_be_listed_is_refused(side: Side, match: str, names_max: Any) -> None:  # noqa: ANN401  # bad on purpose
    with pytest.raises(InvalidInput):
        side.run(list_plan(match, names_max))


# --- the model agrees ---


@each_kind
def test_a_lapsed_lock_is_free_for_the_operator_too(side: Side, kind: Use) -> None:
    name = side.name()
    acquire = replace(kind.acquire(name, HOLDER), ttl_ms=20)  # type: ignore[type-var]  # a frozen dataclass
    side.execute(acquire)
    side.pass_time(0.05 if isinstance(side.clock, ManualClock) else 0.1)
    assert shown(side, name) is None
    assert revoked(side, name) is None
    assert list(side.run(list_plan(name)).names) == []
    assert not isinstance(side.execute(kind.acquire(name, OTHER)), SegmentedError)


PLAIN_STRINGS: Final = {"lock", "fair", "quorum"}
"""Kinds whose main key is a plain string; a vote of a quorum and the others keep each other out without a word."""


@each_kind
def test_a_name_that_one_kind_holds_is_refused_to_every_other_and_stays_held(side: Side, kind: Use) -> None:
    name = side.name()
    side.execute(kind.acquire(name, HOLDER))
    for other in KINDS:
        if "quorum" in {kind.kind, other.kind} and {kind.kind, other.kind} <= PLAIN_STRINGS:
            continue
        if other.kind != kind.kind:
            with pytest.raises(WrongKind):
                side.execute(other.acquire(name, OTHER))
    assert held(side, name).holder_count == 1
    assert side.execute(kind.release(name, HOLDER)) == Released()


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
