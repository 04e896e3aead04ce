"""An operator sees and revokes locks."""

from dataclasses import replace
from typing import Any, Final

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, WrongKind
from segmented.keys import lock_keys, lock_name, operator_keys
from segmented.locks.fair import TIMES
from segmented.locks.operator import list_plan
from segmented.models import Acquired, Held, Lost, Released
from segmented.models.locks import LockHolder, LockState, Revoked
from tests.fixtures.stores import Side
from tests.support.contract.locks.kinds import LONG_MS, Use
from tests.support.contract.locks.operator_kinds import HOLDER, KINDS, OTHER, each_kind, held, revoked, shown
from tests.support.contract.parking import has_come_to_rest, wait_until

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


def test_those_in_the_queue_of_a_fair_lock_and_waiting_writers_are_counted(side: Side) -> None:
    fair, shared = side.name(), side.name()
    for me in ("a", "b", "c"):
        side.execute(op.AcquireFair(fair, me, f"process of {me}", LONG_MS, TIMES))
        side.execute(op.AcquireWrite(shared, me, LONG_MS, LONG_MS))
    assert (held(side, fair).waiters, held(side, shared).waiters) == (2, 2)
    side.execute(op.ReleaseFair(fair, "a", TIMES))
    assert held(side, fair).waiters == 1  # b was handed it and has not come: it waits for nobody


def test_processes_that_listen_are_counted(redis_side: Side) -> None:
    name = redis_side.name()
    with redis_side.lock(name, ttl=LONG).acquire():
        assert held(redis_side, name).listeners == 0
        waiting = redis_side.start(lambda: redis_side.lock(name, ttl=LONG).acquire(timeout=PATIENCE))
        wait_until(lambda: has_come_to_rest(redis_side.store, 1))
        assert held(redis_side, name).listeners == 1
    waiting.result(PATIENCE).release()


@pytest.mark.parametrize("command", [("LPUSH", "x"), ("SADD", "x"), ("HSET", "field", "x"), ("XADD", "*", "f", "x")])
def test_a_key_that_is_no_lock_is_refused_and_left_alone(redis_side: Side, command: tuple[str, ...]) -> None:
    name = redis_side.name()
    key, server = lock_keys(name).lock, redis_side.raw()
    server.execute_command(command[0], key, *command[1:])
    for ask in (shown, revoked):
        with pytest.raises(WrongKind, match=f"'{name}' holds other data"):
            ask(redis_side, name)
    assert server.exists(key) == 1


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


@pytest.mark.parametrize("name", ["plain", "{odd}", "%7D", "a}:fence", "{" * 3 + "%25"])
def test_of_all_keys_of_a_lock_the_main_one_alone_tells_its_name(name: str) -> None:
    main, *companions = operator_keys(name)
    assert lock_name(main) == name
    assert [lock_name(key) for key in companions] == [None] * 10


@pytest.mark.parametrize(("match", "names_max"), [("", 1), ("*", 0), ("*", True), ("*", 1.5)])
def test_what_cannot_be_listed_is_refused(side: Side, match: str, names_max: Any) -> None:  # noqa: ANN401  # bad on purpose
    with pytest.raises(InvalidInput):
        side.run(list_plan(match, names_max))


# --- the model agrees ---


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


def test_a_renamed_holder_has_the_lease_and_the_old_one_has_lost_it(side: Side) -> None:
    name = side.name()
    acquired = side.execute(op.AcquireLock(name, "old", 60_000))
    assert isinstance(acquired, Acquired)
    assert side.execute(op.RenameHolder(name, "old", "new")) is True
    assert side.execute(op.RenameHolder(name, "old", "new")) is True
    assert side.execute(op.RenewLock(name, "old", 60_000)) == Lost()
    assert side.execute(op.ReleaseLock(name, "old")) in (Lost(), Lost(is_unsure=True))
    assert isinstance(side.execute(op.AcquireLock(name, "old", 60_000)), Held)
    found = side.execute(op.AdoptLock(name, "new", 1))
    assert isinstance(found, Acquired)
    assert found.fencing_token == acquired.fencing_token
    assert 30_000 < found.ttl_ms <= 60_000
    assert side.execute(op.ReleaseLock(name, "new")) == Released()


def test_a_delay_goes_on_with_the_new_holder(side: Side) -> None:
    name = side.name()
    side.execute(op.AcquireLock(name, "old", 60_000, 60_000))
    assert side.execute(op.RenameHolder(name, "old", "new"))
    side.execute(op.RenewLock(name, "new", 50, 60_000))
    side.pass_time(0.1)
    held = side.execute(op.AcquireLock(name, "next", 50))
    assert isinstance(held, Held)
    assert held.is_delayed


def test_an_owner_is_shown_with_the_number_of_its_entries(side: Side) -> None:
    name = side.name()
    for holder_id in ("a1", "a2", "a3"):
        side.execute(op.AcquireReentrant(name, "mode", holder_id, LONG_MS))
    assert timeless(held(side, name)).holders == (LockHolder("", "exclusive", None, owner="mode", count=3),)


def test_a_revoke_ends_a_lock_delay(side: Side) -> None:
    name = side.name()
    side.execute(op.AcquireLock(name, HOLDER, 20, LONG_MS))
    side.pass_time(0.03)
    assert held(side, name).is_delayed
    assert revoked(side, name) is not None
    assert isinstance(side.execute(op.AcquireLock(name, OTHER, LONG_MS)), Acquired)
