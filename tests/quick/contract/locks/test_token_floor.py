"""A server that forgot tokens gives none below those that the process has seen, whatever way the lock is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from segmented import protocol as op
from segmented.keys import fair_keys, read_write_keys, reentrant_keys
from segmented.models import Acquired, Held
from segmented.protocol.fair import FairTimes
from tests.fixtures.stores import another_process

if TYPE_CHECKING:
    from segmented.protocol import Operation
    from tests.fixtures.stores import Side


TTL_MS: Final = 60_000
TIMES: Final = FairTimes(presence_ms=60_000, look_ms=60_000, claim_ms=60_000)
AHEAD: Final = 10**9
"""Microseconds by which the lost token was ahead of the clock of the server that took over."""


def token(side: Side, operation: Operation[Acquired | Held]) -> int:
    answer = side.execute(operation)
    assert isinstance(answer, Acquired), answer
    return answer.fencing_token


@pytest.fixture
def name(redis_side: Side) -> str:
    return redis_side.name()


def test_the_token_of_a_handed_over_fair_lock_exceeds_all_that_its_holder_has_seen(redis_side: Side, name: str) -> None:
    fence = fair_keys(name).fence
    mine = op.AcquireFair(name, "mine", "here", TTL_MS, TIMES)
    with another_process(redis_side) as other:
        redis_side.raw().hset(fence, mapping={"token": "9007199254740000", "kind": "fair"})
        lost = token(redis_side, mine)
        assert lost == 9007199254740001
        redis_side.execute(op.ReleaseFair(name, "mine", TIMES))
        redis_side.raw().hset(fence, "token", "1")  # as of a server that forgot it
        low = token(other, op.AcquireFair(name, "theirs", "there", TTL_MS, TIMES))
        assert low < lost
        again = op.AcquireFair(name, "again", "here", TTL_MS, TIMES)
        assert isinstance(redis_side.execute(again), Held)
        other.execute(op.ReleaseFair(name, "theirs", TIMES))
        assert token(redis_side, again) == lost + 1
        assert token(redis_side, again) == lost + 1


def test_a_joining_reader_gets_a_token_not_below_those_that_its_process_has_seen(redis_side: Side, name: str) -> None:
    keys = read_write_keys(name)
    with another_process(redis_side) as other:
        first = token(other, op.AcquireRead(name, "theirs", TTL_MS))
        redis_side.raw().hset(keys.lock, "token", str(first + AHEAD))
        assert token(redis_side, op.AcquireRead(name, "lost", TTL_MS)) == first + AHEAD
        redis_side.raw().hset(keys.lock, "token", str(first))
        assert token(redis_side, op.AcquireRead(name, "mine", TTL_MS)) == first + AHEAD + 1
        assert token(other, op.AcquireRead(name, "third", TTL_MS)) == first + AHEAD + 1
        assert redis_side.raw().hget(keys.fence, "token") in (b"%d" % (first + AHEAD + 1), str(first + AHEAD + 1))


def test_readers_that_overlap_share_a_token_that_their_processes_have_seen(redis_side: Side, name: str) -> None:
    first = token(redis_side, op.AcquireRead(name, "first", TTL_MS))
    assert token(redis_side, op.AcquireRead(name, "second", TTL_MS)) == first
    assert token(redis_side, op.AcquireRead(name, "first", TTL_MS)) == first


def test_a_reentered_lock_has_a_token_not_below_those_that_its_process_has_seen(redis_side: Side, name: str) -> None:
    keys = reentrant_keys(name)
    first = token(redis_side, op.AcquireReentrant(name, "me", "one", TTL_MS))
    redis_side.raw().hset(keys.fence, "token", str(first + AHEAD))
    assert token(redis_side, op.AcquireReentrant(name, "me", "two", TTL_MS)) == first + AHEAD
    redis_side.raw().hset(keys.fence, "token", str(first))
    assert token(redis_side, op.AcquireReentrant(name, "me", "three", TTL_MS)) == first + AHEAD + 1
    assert token(redis_side, op.AcquireReentrant(name, "me", "three", TTL_MS)) == first + AHEAD + 1
