"""Operations on cached values, on every store and in both colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import WrongKind
from segmented.keys import cache_keys
from segmented.models import Acquired, Cached, Forgotten, Held, MayLoad, Outpaced, Released, Uncached, Written

if TYPE_CHECKING:
    from segmented.protocol import Operation
    from tests.fixtures.stores import Side

TTL_MS = 60_000
SOON = 30.0
ONE, TWO = Cached("text", '"one"'), Cached("text", '"two"')


class Cache:
    """One name on a side, with lives that most tests do not mind."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.name = side.name("cached")

    def read(self) -> Cached | Uncached:
        return self.side.execute(op.ReadCached(self.name))

    def look(self, holder_id: str, *, ttl_ms: int = TTL_MS, hold_off_ms: int = 1_000) -> Cached | Held | MayLoad:
        return self.side.execute(op.ReadOrAcquire(self.name, holder_id, ttl_ms, hold_off_ms))

    def turn(self, holder_id: str, *, ttl_ms: int = TTL_MS) -> Acquired:
        answer = self.look(holder_id, ttl_ms=ttl_ms)
        assert isinstance(answer, MayLoad)
        return answer.acquired

    def write(
        self, holder_id: str, turn: Acquired, value: Cached, *, ttl_ms: int = TTL_MS, refresh_in_ms: int | None = None
    ) -> Written | Outpaced:
        token = turn.fencing_token
        return self.side.execute(op.WriteCached(self.name, holder_id, token, value, ttl_ms, refresh_in_ms))

    def forget(self) -> Forgotten:
        return self.side.execute(op.ForgetCached(self.name))

    def release(self, holder_id: str) -> object:
        return self.side.execute(op.ReleaseLock(self.name, holder_id))


@pytest.fixture
def cache(side: Side) -> Cache:
    return Cache(side)


def test_who_finds_nothing_gets_the_turn_and_the_next_one_waits(cache: Cache) -> None:
    assert cache.read() == Uncached()
    answer = cache.look("a")
    assert isinstance(answer, MayLoad)
    assert (answer.old, answer.acquired.ttl_ms, answer.acquired.replay) == (None, TTL_MS, False)
    held = cache.look("b")
    assert isinstance(held, Held)
    assert held.free_in_ms is not None
    assert TTL_MS - 30_000 < held.free_in_ms <= TTL_MS


def test_a_kept_value_is_read_without_the_lock_also_while_it_is_held(cache: Cache) -> None:
    turn = cache.turn("a")
    assert cache.write("a", turn, ONE) == Written()
    assert cache.look("b") == ONE
    cache.release("a")
    assert (cache.look("b"), cache.read()) == (ONE, ONE)
    assert isinstance(cache.side.execute(op.AcquireLock(cache.name, "c", TTL_MS)), Acquired)


def test_a_value_lapses(cache: Cache) -> None:
    cache.write("a", cache.turn("a"), ONE, ttl_ms=30)
    cache.release("a")
    cache.side.pass_time(0.05)
    assert cache.read() == Uncached()
    assert isinstance(cache.look("b"), MayLoad)


@pytest.mark.parametrize(
    "body", ["", "ü票", "{}", "a b\nc", "x" * 100_000], ids=["empty", "wide", "json", "lines", "long"]
)
def test_a_body_comes_back_as_it_was(cache: Cache, body: str) -> None:
    for kind in ("text", "none", "error", "bytes"):
        value = Cached(kind, body)
        cache.write("a", cache.turn("a"), value)
        cache.release("a")
        assert (cache.read(), cache.look("b")) == (value, value)
        cache.forget()


def test_asking_again_keeps_the_turn_and_its_token(cache: Cache) -> None:
    turn, again = cache.turn("a"), cache.turn("a")
    assert (again.fencing_token, again.replay) == (turn.fencing_token, True)


def test_asking_again_gives_the_lock_back_when_a_value_has_come(cache: Cache) -> None:
    slept = cache.turn("a", ttl_ms=20)
    cache.side.pass_time(0.05)
    cache.turn("b")
    assert cache.write("a", slept, ONE) == Written()
    assert cache.look("b") == ONE
    assert cache.release("b") == Released()  # as after any release, whose reply may have been lost
    assert isinstance(cache.side.execute(op.AcquireLock(cache.name, "c", TTL_MS)), Acquired)


def test_an_overslept_loader_is_kept_while_its_successor_loads_and_not_after(cache: Cache) -> None:
    first = cache.turn("a", ttl_ms=20)
    cache.side.pass_time(0.05)
    second = cache.turn("b", ttl_ms=20)
    cache.side.pass_time(0.05)
    third = cache.turn("c")
    assert cache.write("b", second, TWO) == Written()
    assert cache.write("a", first, ONE) == Outpaced()
    assert cache.read() == TWO
    assert cache.write("c", third, ONE) == Written()
    assert cache.read() == ONE


def test_an_overslept_loader_is_refused_also_when_the_newer_value_has_lapsed(cache: Cache) -> None:
    first = cache.turn("a", ttl_ms=20)
    cache.side.pass_time(0.05)
    cache.write("b", cache.turn("b"), TWO, ttl_ms=20)
    cache.release("b")
    cache.side.pass_time(0.05)
    assert cache.write("a", first, ONE) == Outpaced()
    assert cache.read() == Uncached()


def test_nothing_that_was_being_loaded_when_it_was_forgotten_is_kept(cache: Cache) -> None:
    turn = cache.turn("a")
    assert cache.forget() == Forgotten(was_kept=False)
    assert cache.write("a", turn, ONE) == Outpaced()
    cache.release("a")
    assert cache.write("b", cache.turn("b"), TWO) == Written()
    assert (cache.forget(), cache.forget()) == (Forgotten(was_kept=True), Forgotten(was_kept=False))
    assert cache.read() == Uncached()
    assert cache.write("b", cache.turn("b"), ONE) == Outpaced()  # the turn of b is still the one before
    cache.release("b")
    assert cache.write("c", cache.turn("c"), ONE) == Written()


def test_a_value_that_is_due_is_handed_out_once_and_read_by_the_others(cache: Cache) -> None:
    cache.write("a", cache.turn("a"), ONE, refresh_in_ms=400)
    cache.release("a")
    assert cache.look("b") == ONE
    cache.side.pass_time(0.5)
    answer = cache.look("b", hold_off_ms=TTL_MS)
    assert isinstance(answer, MayLoad)
    assert answer.old == ONE
    assert cache.look("c") == ONE
    cache.write("b", answer.acquired, TWO, refresh_in_ms=TTL_MS)
    cache.release("b")
    assert cache.look("c") == TWO


def test_a_refresh_that_was_given_up_is_held_off_for_a_while(cache: Cache) -> None:
    cache.write("a", cache.turn("a"), ONE, refresh_in_ms=20)
    cache.release("a")
    cache.side.pass_time(0.05)
    assert isinstance(cache.look("b", hold_off_ms=60), MayLoad)
    cache.release("b")
    assert cache.look("c") == ONE
    cache.side.pass_time(0.1)
    assert isinstance(cache.look("c"), MayLoad)


def test_a_turns_token_is_between_those_of_the_lock_before_and_the_one_after(cache: Cache) -> None:
    before = cache.side.execute(op.AcquireLock(cache.name, "x", TTL_MS))
    cache.release("x")
    turn = cache.turn("a")
    cache.release("a")
    after = cache.side.execute(op.AcquireLock(cache.name, "y", TTL_MS))
    assert isinstance(before, Acquired)
    assert isinstance(after, Acquired)
    assert before.fencing_token < turn.fencing_token < after.fencing_token


@pytest.mark.parametrize(
    "look",
    [lambda name: op.ReadOrAcquire(name, "a", TTL_MS, 1_000), op.ReadCached, op.ForgetCached],
    ids=["a", "b", "c"],
)
def test_a_key_of_another_type_is_refused_and_stays(plain_redis_side: Side, look: type[Operation[object]]) -> None:
    name = plain_redis_side.name("cached")
    keys = cache_keys(name)
    where = (
        keys.cached
        if look is op.ReadCached
        else keys.locking.lock
        if look is not op.ForgetCached
        else keys.locking.fence
    )
    plain_redis_side.raw().rpush(where, "other")
    with pytest.raises(WrongKind):
        plain_redis_side.execute(look(name))  # type: ignore[call-arg]  # each takes a name
    assert plain_redis_side.raw().keys(f"{keys.locking.lock.replace('{', '?').replace('}', '?')}*") == [where]


def test_the_keys_of_a_cached_value_are_these_and_all_lapse(plain_redis_side: Side) -> None:
    cache = Cache(plain_redis_side)
    keys, server = cache_keys(cache.name), plain_redis_side.raw()
    cache.write("a", cache.turn("a"), ONE, refresh_in_ms=1_000)
    assert set(server.keys("*")) & set(keys.listed()) == {keys.locking.lock, keys.locking.fence, keys.cached}
    assert 30_000 < server.pttl(keys.cached) <= TTL_MS
    assert 30_000 < server.pttl(keys.locking.lock) <= TTL_MS
    assert 3_540_000 < server.pttl(keys.locking.fence) <= 3_600_000
    assert set(server.hkeys(keys.cached)) == {"kind", "body", "refresh_at"}


def test_who_waits_is_told_of_a_value_whose_writer_has_lost_the_lock(plain_redis_side: Side) -> None:
    cache, server = Cache(plain_redis_side), plain_redis_side.raw()
    turn = cache.turn("a", ttl_ms=20)
    with server.pubsub() as subscription:
        subscription.subscribe(cache_keys(cache.name).locking.freed)
        assert subscription.get_message(timeout=SOON) is not None  # the subscription's own
        plain_redis_side.pass_time(0.05)
        successor = cache.turn("b")
        assert cache.write("a", turn, ONE) == Written()
        message = subscription.get_message(timeout=SOON)
        assert message is not None
        assert message["data"] == "cached"
        cache.write("b", successor, TWO)
        assert subscription.get_message(timeout=0.1) is None  # its release will tell


def test_a_loader_whose_fence_was_lost_is_not_kept(plain_redis_side: Side) -> None:
    cache = Cache(plain_redis_side)
    turn = cache.turn("a")
    plain_redis_side.raw().delete(cache_keys(cache.name).locking.fence)
    assert cache.write("a", turn, ONE) == Outpaced()
    cache.release("a")
    later = cache.turn("b")
    assert later.fencing_token > turn.fencing_token
    assert cache.write("a", turn, ONE) == Outpaced()
    assert cache.write("b", later, TWO) == Written()
