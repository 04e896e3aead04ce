"""A reentrant lock: who may enter again, what counts, and who cannot take anything off. The ids are catalogue rows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput
from segmented.keys import reentrant_keys
from segmented.locks.reentrant import AsyncReentrantLock, ReentrantLock, task_owner
from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.stores.memory import AsyncMemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.locks.reentrant import Owner
    from tests.fixtures.stores import Side


LONG_MS = 60_000
SOON = 30.0
PATIENCE = 60.0


def made(side: Side, name: str, *, owner: Owner | None = None, ttl: float = 60.0, renew: bool = False) -> ReentrantLock:
    return side.made(
        lambda store: ReentrantLock(store, name, owner=owner, ttl=ttl, renew=renew),
        lambda store: AsyncReentrantLock(store, name, owner=owner, ttl=ttl, renew=renew),
    )


def enter(side: Side, name: str, owner: str, holder_id: str, *, ttl_ms: int = LONG_MS) -> Acquired:
    answer = side.execute(op.AcquireReentrant(name, owner, holder_id, ttl_ms))
    assert isinstance(answer, Acquired), answer
    return answer


def left_ms(side: Side, name: str) -> int:
    """Return how long the lock still lives, as another owner is told."""
    answer = side.execute(op.AcquireReentrant(name, "somebody else", "s", LONG_MS, only_again=True))
    assert isinstance(answer, Held), answer
    return answer.free_in_ms or 0


# --- counting ---


def test_an_owner_enters_twice_and_holds_until_both_have_left(side: Side) -> None:
    name = side.name("lock")
    enter(side, name, "a", "a1")
    enter(side, name, "a", "a2")
    assert isinstance(side.execute(op.AcquireReentrant(name, "b", "b1", LONG_MS)), Held)
    assert side.execute(op.ReleaseReentrant(name, "a", "a1")) == Released()
    assert isinstance(side.execute(op.AcquireReentrant(name, "b", "b1", LONG_MS)), Held)
    assert side.execute(op.ReleaseReentrant(name, "a", "a2")) == Released()
    enter(side, name, "b", "b1")


def test_e1_an_acquire_that_is_sent_twice_counts_once(side: Side) -> None:
    name = side.name("lock")
    first = enter(side, name, "a", "a1")
    again = enter(side, name, "a", "a1")
    assert (first.replay, again.replay) == (False, True)
    assert again.fencing_token == first.fencing_token
    assert side.execute(op.ReleaseReentrant(name, "a", "a1")) == Released()
    enter(side, name, "b", "b1")


def test_a7_a_release_that_is_sent_twice_takes_one_off(side: Side) -> None:
    name = side.name("lock")
    enter(side, name, "a", "a1")
    enter(side, name, "a", "a2")
    assert side.execute(op.ReleaseReentrant(name, "a", "a1")) == Released()
    assert side.execute(op.ReleaseReentrant(name, "a", "a1")) == Lost()
    assert isinstance(side.execute(op.AcquireReentrant(name, "b", "b1", LONG_MS)), Held)
    assert side.execute(op.RenewReentrant(name, "a", "a2", LONG_MS)) == Renewed(LONG_MS)


@pytest.mark.parametrize(("owner", "holder_id"), [("b", "a1"), ("a", "a9"), ("b", "b1")])
def test_h1_nobody_else_takes_anything_off_or_renews(side: Side, owner: str, holder_id: str) -> None:
    name = side.name("lock")
    enter(side, name, "a", "a1")
    assert side.execute(op.ReleaseReentrant(name, owner, holder_id)) == Lost()
    assert side.execute(op.RenewReentrant(name, owner, holder_id, 1)) == Lost()
    assert left_ms(side, name) > LONG_MS / 2
    assert side.execute(op.ReleaseReentrant(name, "a", "a1")) == Released()
    enter(side, name, "b", "b1")


def test_g3_reentry_keeps_the_fencing_token_and_the_next_owner_has_a_greater_one(side: Side) -> None:
    name = side.name("lock")
    tokens = [enter(side, name, "a", f"a{index}").fencing_token for index in range(3)]
    assert len(set(tokens)) == 1
    for index in range(3):
        side.execute(op.ReleaseReentrant(name, "a", f"a{index}"))
    assert enter(side, name, "a", "again").fencing_token > tokens[0]


def test_what_was_entered_before_a_loss_counts_no_more(side: Side) -> None:
    name = side.name("lock")
    before = enter(side, name, "a", "old", ttl_ms=20)
    side.pass_time(0.05)
    after = enter(side, name, "a", "new")
    assert (after.replay, after.fencing_token > before.fencing_token) == (False, True)
    assert side.execute(op.RenewReentrant(name, "a", "old", LONG_MS)) == Lost()
    assert side.execute(op.ReleaseReentrant(name, "a", "old")) == Lost()
    assert isinstance(side.execute(op.AcquireReentrant(name, "b", "b1", LONG_MS)), Held)
    assert side.execute(op.ReleaseReentrant(name, "a", "new")) == Released()
    enter(side, name, "b", "b1")


def test_an_owner_that_may_only_enter_again_leaves_a_free_lock_alone(side: Side) -> None:
    name = side.name("lock")
    assert side.execute(op.AcquireReentrant(name, "a", "a1", LONG_MS, only_again=True)) == Held(0)
    enter(side, name, "b", "b1")
    assert isinstance(side.execute(op.AcquireReentrant(name, "b", "b2", LONG_MS, only_again=True)), Acquired)


# --- time to live ---


def test_h4_a_partial_release_leaves_the_time_to_live_as_it_is(side: Side) -> None:
    name = side.name("lock")
    enter(side, name, "a", "a1", ttl_ms=LONG_MS)
    enter(side, name, "a", "a2", ttl_ms=LONG_MS)
    side.pass_time(0.2)
    side.execute(op.ReleaseReentrant(name, "a", "a2"))
    assert 30_000 < left_ms(side, name) <= LONG_MS - 200


def test_an_entry_for_a_shorter_time_does_not_shorten_what_another_was_promised(side: Side) -> None:
    name = side.name("lock")
    enter(side, name, "a", "long", ttl_ms=LONG_MS)
    enter(side, name, "a", "short", ttl_ms=25_000)
    assert left_ms(side, name) > LONG_MS / 2
    assert side.execute(op.RenewReentrant(name, "a", "short", 25_000)) == Renewed(25_000)
    assert left_ms(side, name) > LONG_MS / 2
    side.execute(op.ReleaseReentrant(name, "a", "long"))
    assert left_ms(side, name) > LONG_MS / 2
    side.execute(op.RenewReentrant(name, "a", "short", 25_000))
    assert left_ms(side, name) <= 25_000


def test_b6_a_renewal_that_comes_too_late_makes_nothing_anew(side: Side) -> None:
    name = side.name("lock")
    enter(side, name, "a", "a1", ttl_ms=20)
    side.pass_time(0.05)
    assert side.execute(op.RenewReentrant(name, "a", "a1", LONG_MS)) == Lost()
    enter(side, name, "b", "b1")


# --- keys ---


def test_the_main_key_is_a_hash_of_owner_and_count_and_everything_lapses(redis_side: Side) -> None:
    name, server = redis_side.name("lock"), redis_side.raw()
    keys = reentrant_keys(name)
    enter(redis_side, name, "a", "a1", ttl_ms=5_000)
    enter(redis_side, name, "a", "a2", ttl_ms=LONG_MS)
    assert server.hgetall(keys.lock) == {"owner:a": "2"}
    assert server.smembers(keys.entries) == {"a1", "a2"}
    assert server.hget(keys.fence, "kind") == "reentrant"
    assert 30_000 < server.pttl(keys.lock) <= LONG_MS
    assert server.pexpiretime(keys.lock) == server.pexpiretime(keys.entries)
    day_ms = 24 * 3_600_000
    assert day_ms < server.pttl(keys.fence) <= day_ms + LONG_MS
    redis_side.execute(op.ReleaseReentrant(name, "a", "a1"))
    assert server.hgetall(keys.lock) == {"owner:a": "1"}
    redis_side.execute(op.ReleaseReentrant(name, "a", "a2"))
    assert server.keys(f"{keys.lock}*") == [keys.fence]


# --- leases ---


def test_a5_a_second_release_of_one_lease_does_nothing_to_the_other(side: Side) -> None:
    lock = made(side, side.name("lock"))
    outer, inner = lock.acquire(owner="a"), lock.acquire(owner="a")
    inner.release()
    inner.release()
    assert lock.try_acquire(owner="b") is None
    outer.release()


BAD_OWNERS: list[tuple[object, str]] = [
    ("", "^an owner needs a name$"),
    (b"bytes", "^the name of an owner is a text, not bytes: b'bytes'$"),
    ("a\nb", "cannot be printed"),
    ("x" * 2_000, "^the name of an owner has 2000 characters; the maximum is 1024$"),
    (lambda: "", "^an owner needs a name$"),
]


@pytest.mark.parametrize(("owner", "sentence"), BAD_OWNERS, ids=[str(index) for index in range(len(BAD_OWNERS))])
def test_an_owner_that_is_none_is_refused_and_nothing_is_taken(side: Side, owner: Owner, sentence: str) -> None:
    lock = made(side, side.name("lock"))
    calls: list[Callable[[], object]] = [lambda: lock.acquire(owner=owner), lambda: lock.try_acquire(owner=owner)]
    for call in calls:
        with pytest.raises(InvalidInput, match=sentence):
            call()
    assert lock.try_acquire(owner="a") is not None


def test_a_handle_may_know_its_owner_or_how_to_ask_for_it(side: Side) -> None:
    asked = []

    def ask() -> str:
        asked.append(1)
        return "a"

    lock = made(side, side.name("lock"), owner=ask)
    outer, inner = lock.acquire(timeout=0), lock.try_acquire()
    assert len(asked) == 2
    assert inner is not None
    assert lock.try_acquire(owner="b") is None
    inner.release()
    outer.release()


def test_h2_h3_neither_a_sibling_nor_a_child_enters_as_the_task_that_holds() -> None:
    async def body() -> None:
        lock = AsyncReentrantLock(AsyncMemoryStore(), "door", owner=task_owner)

        async def sibling() -> bool:
            return await lock.try_acquire() is None

        async with lock.acquire() as outer, lock.acquire() as inner:
            assert inner.fencing_token == outer.fencing_token
            assert await asyncio.create_task(sibling())
            assert all(await asyncio.gather(sibling(), sibling()))
        assert not await sibling()

    asyncio.run(body())


def test_an_acquire_belongs_to_the_task_that_calls_it_also_if_another_awaits_it() -> None:
    async def body() -> None:
        lock = AsyncReentrantLock(AsyncMemoryStore(), "door", owner=task_owner)
        outer = await lock.acquire()
        inner = await asyncio.ensure_future(lock.acquire())
        tried = await asyncio.ensure_future(lock.try_acquire())
        assert tried is not None
        for lease in (tried, inner, outer):
            await lease.release()
        assert await lock.try_acquire(owner="anybody") is not None

    asyncio.run(body())


def test_the_fence_outlives_a_lock_that_is_renewed_for_long(redis_side: Side) -> None:
    name, server = redis_side.name("lock"), redis_side.raw()
    token = enter(redis_side, name, "a", "a1").fencing_token
    server.pexpire(reentrant_keys(name).fence, 1_000)
    redis_side.execute(op.RenewReentrant(name, "a", "a1", LONG_MS))
    assert server.pttl(reentrant_keys(name).fence) > LONG_MS
    assert enter(redis_side, name, "a", "a2").fencing_token == token
