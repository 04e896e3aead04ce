"""One server's votes for locks that a majority keeps, on each store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import WrongKind
from segmented.keys import lock_keys
from segmented.models import Acquired, HeldBy, Lost, Reestablished, Released, Renewed, ServerIdentity
from segmented.protocol.vote import ROUND_MAX, ROUND_REESTABLISHED

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


LONG_MS = 600_000


def vote(side: Side, name: str, holder: str = "h", *, number: int = 1, ttl_ms: int = LONG_MS) -> Acquired | HeldBy:
    answer = side.execute(op.AcquireVote(name, holder, ttl_ms, number))
    assert isinstance(answer, Acquired | HeldBy)
    return answer


def mark(side: Side, name: str) -> str:
    """Return the mark by which another attempt knows who has the vote."""
    answer = vote(side, name, "who asks")
    assert isinstance(answer, HeldBy)
    return answer.holder_mark


def test_a_vote_is_taken_renewed_and_given_back(side: Side) -> None:
    name = side.name("lock")
    assert vote(side, name) == Acquired(0, LONG_MS, replay=False)
    held = vote(side, name, "another")
    assert isinstance(held, HeldBy)
    assert held.free_in_ms is not None
    assert LONG_MS - 60_000 < held.free_in_ms <= LONG_MS
    assert side.execute(op.RenewVote(name, "another", LONG_MS)) == Lost()
    assert side.execute(op.RenewVote(name, "h", 90_000)) == Renewed(90_000)
    assert side.execute(op.ReleaseVote(name, "another")) == Lost()
    assert side.execute(op.ReleaseVote(name, "h")) == Released()
    assert vote(side, name, "another") == Acquired(0, LONG_MS, replay=False)


def test_e1_a_vote_that_is_asked_for_again_is_the_holders_still(side: Side) -> None:
    name = side.name("lock")
    vote(side, name, ttl_ms=60_000)
    assert vote(side, name, number=2) == Acquired(0, LONG_MS, replay=True)
    held = vote(side, name, "another")
    assert isinstance(held, HeldBy)
    assert held.free_in_ms is not None
    assert held.free_in_ms > LONG_MS - 60_000


def test_a7_a_repeated_release_is_no_loss_and_an_undone_attempt_leaves_no_message(side: Side) -> None:
    name = side.name("lock")
    vote(side, name)
    for _ in range(2):
        assert side.execute(op.ReleaseVote(name, "h")) == Released()
    vote(side, name, "another")
    assert side.execute(op.ReleaseVote(name, "another", 1)) == Released()
    assert side.execute(op.ReleaseVote(name, "another", 1)) == Lost()


def test_a_mark_is_that_of_one_attempt_and_not_the_holders_id(side: Side) -> None:
    name, other = side.name("lock"), side.name("lock")
    vote(side, name, "secret", number=1)
    vote(side, other, "secret", number=1)
    assert mark(side, name) == mark(side, other)
    vote(side, other, "secret", number=2)
    assert mark(side, name) != mark(side, other)
    if side.flavour.store == "redis":
        assert "secret" not in mark(side, name)
        assert len(mark(side, name)) == 16


def test_what_takes_an_earlier_attempt_back_leaves_a_later_one_alone(side: Side) -> None:
    name = side.name("lock")
    vote(side, name, number=3)
    assert side.execute(op.ReleaseVote(name, "h", 2)) == Lost()
    vote(side, name, number=1)  # a request that is late
    assert side.execute(op.ReleaseVote(name, "h", 2)) == Lost()
    assert side.execute(op.ReleaseVote(name, "h", 3)) == Released()


def test_an_earlier_holders_attempts_do_not_count(side: Side) -> None:
    name = side.name("lock")
    vote(side, name, "another", number=9)
    side.execute(op.ReleaseVote(name, "another"))
    vote(side, name, number=1)
    assert side.execute(op.ReleaseVote(name, "h", 1)) == Released()


@pytest.mark.parametrize("reestablish", [False, True])
def test_b6_a_renewal_after_the_end_makes_the_vote_again_only_if_asked_and_says_so(
    side: Side, *, reestablish: bool
) -> None:
    name = side.name("lock")
    vote(side, name, ttl_ms=2)
    side.pass_time(0.01)
    answer = side.execute(op.RenewVote(name, "h", LONG_MS, reestablish))
    assert answer == (Reestablished() if reestablish else Lost())
    assert isinstance(vote(side, name, "another"), HeldBy) is reestablish


def test_a_renewal_takes_no_vote_from_somebody_else(side: Side) -> None:
    name = side.name("lock")
    vote(side, name, "another")
    assert side.execute(op.RenewVote(name, "h", LONG_MS, reestablish=True)) == Lost()


def test_votes_taken_again_have_one_mark_and_are_later_than_any_attempt(side: Side) -> None:
    lived_on, restarted = side.name("lock"), side.name("lock")
    vote(side, lived_on, number=5)
    for name in (lived_on, restarted):
        side.execute(op.RenewVote(name, "h", LONG_MS, reestablish=True))
    assert mark(side, lived_on) == mark(side, restarted)
    assert side.execute(op.ReleaseVote(restarted, "h", 5)) == Lost()
    assert side.execute(op.ReleaseVote(restarted, "h", ROUND_REESTABLISHED)) == Released()
    assert side.execute(op.ReleaseVote(lived_on, "h", ROUND_MAX)) == Released()


def test_every_server_says_the_same_of_itself_each_time(side: Side) -> None:
    first = side.execute(op.IdentifyServer())
    assert isinstance(first, ServerIdentity)
    assert first.run_id
    assert side.execute(op.IdentifyServer()) == first


def test_a_release_wakes_and_a_quiet_one_does_not(redis_side: Side) -> None:
    name, server = redis_side.name("lock"), redis_side.raw()
    with server.pubsub() as listener:
        listener.subscribe(lock_keys(name).freed)
        assert (listener.get_message(timeout=30) or {})["type"] == "subscribe"
        vote(redis_side, name)
        redis_side.execute(op.ReleaseVote(name, "h", 1, quiet=True))
        vote(redis_side, name)
        redis_side.execute(op.ReleaseVote(name, "nobody"))
        redis_side.execute(op.ReleaseVote(name, "h"))
        server.publish(lock_keys(name).freed, "the end")
        assert [(listener.get_message(timeout=30) or {})["data"] for _ in range(2)] == ["freed", "the end"]


def test_the_keys_of_a_vote_lapse_and_are_those_of_a_lock(plain_redis_side: Side) -> None:
    name, server = plain_redis_side.name("lock"), plain_redis_side.raw()
    keys = lock_keys(name)
    vote(plain_redis_side, name)
    plain_redis_side.execute(op.RenewVote(name, "h", LONG_MS, reestablish=True))
    assert {key for key in server.keys("*") if name in key} == {keys.lock, keys.fence}
    assert server.get(keys.lock) == "h"
    assert server.hget(keys.fence, "kind") == "quorum"
    assert LONG_MS - 60_000 < server.pttl(keys.lock) <= LONG_MS
    day_ms = 24 * 3_600_000
    assert day_ms < server.pttl(keys.fence) <= day_ms + LONG_MS
    plain_redis_side.execute(op.ReleaseVote(name, "h"))
    assert {key for key in server.keys("*") if name in key} == {keys.fence}


@pytest.mark.parametrize("key", ["lock", "fence"])
def test_a_key_that_holds_something_else_is_told_apart_and_nothing_is_taken(plain_redis_side: Side, key: str) -> None:
    name, server = plain_redis_side.name("lock"), plain_redis_side.raw()
    keys = lock_keys(name)
    server.rpush(getattr(keys, key), "a list")
    with pytest.raises(WrongKind):
        vote(plain_redis_side, name)
    with pytest.raises(WrongKind):
        plain_redis_side.execute(op.RenewVote(name, "h", LONG_MS, reestablish=True))
    assert server.exists(keys.lock, keys.fence) == 1
