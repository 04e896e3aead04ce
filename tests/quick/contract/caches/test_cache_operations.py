"""Operations on cached values, on every store and in both colours."""

import pytest

from segmented import protocol as op
from segmented.models import Acquired, Cached, Forgotten, Held, MayLoad, Outpaced, Released, Uncached, Written
from tests.fixtures.stores import Side

TTL_MS = 60_000
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


def test_asking_again_gives_the_lock_back_when_a_value_has_come(cache: Cache) -> None:
    slept = cache.turn("a", ttl_ms=20)
    cache.side.pass_time(0.05)
    cache.turn("b")
    assert cache.write("a", slept, ONE) == Written()
    assert cache.look("b") == ONE
    assert cache.release("b") == Released()  # as after any release, whose reply may have been lost
    assert isinstance(cache.side.execute(op.AcquireLock(cache.name, "c", TTL_MS)), Acquired)


def test_an_overslept_loader_is_refused_also_when_the_newer_value_has_lapsed(cache: Cache) -> None:
    first = cache.turn("a", ttl_ms=20)
    cache.side.pass_time(0.05)
    cache.write("b", cache.turn("b"), TWO, ttl_ms=20)
    cache.release("b")
    cache.side.pass_time(0.05)
    assert cache.write("a", first, ONE) == Outpaced()
    assert cache.read() == Uncached()


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


def test_a_turns_token_is_between_those_of_the_lock_before_and_the_one_after(cache: Cache) -> None:
    before = cache.side.execute(op.AcquireLock(cache.name, "x", TTL_MS))
    cache.release("x")
    turn = cache.turn("a")
    cache.release("a")
    after = cache.side.execute(op.AcquireLock(cache.name, "y", TTL_MS))
    assert isinstance(before, Acquired)
    assert isinstance(after, Acquired)
    assert before.fencing_token < turn.fencing_token < after.fencing_token
