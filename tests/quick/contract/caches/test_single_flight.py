"""Single flights on every store and in both colours."""

import asyncio
import logging
from typing import Any

import pytest

from segmented import AsyncMemoryStore, MemoryStore, protocol as op
from segmented.errors import AcquireTimeout, InvalidInput, LoaderFailed, StoreRefused, StoreUnavailable
from segmented.locks import AsyncLock
from segmented.locks.flights import AsyncSingleFlight, FlightOptions, SingleFlight, single_flight
from segmented.models import Acquired, Cached, Forgotten, Held, MayLoad, Outpaced, Released, Uncached, Written
from segmented.protocol import Operation
from segmented.stores.redis import RedisStore
from tests.fixtures.stores import Side
from tests.support.contract.caches.flights import Flight, Loader
from tests.support.contract.locks.locked import is_free
from tests.support.contract.parking import lines_of


def test_none_may_be_kept_for_a_shorter_time_or_not_at_all(side: Side) -> None:
    key, loader = side.name(), Loader(None, "here")
    flight = Flight(side, keep=600, keep_none=60)
    assert (flight.get(key, loader), flight.get(key, loader)) == (None, None)
    brief, loader = side.name(), Loader(None, "here")
    flight = Flight(side, keep_none=0.1)
    assert flight.get(brief, loader) is None
    side.pass_time(0.15)
    assert flight.get(brief, loader) == "here"
    other, loader = side.name(), Loader(None)
    flight = Flight(side, keep_none=0)
    assert (flight.get(other, loader), flight.get(other, loader), loader.calls) == (None, None, 2)


def test_a_failure_need_not_be_kept(side: Side) -> None:
    flight, key, loader = (
        Flight(side, keep_failures=0),
        side.name(),
        Loader(ValueError("one"), ValueError("two"), "here"),
    )
    for message in ("one", "two"):
        with pytest.raises(ValueError, match=message):
            flight.get(key, loader)
    assert flight.get(key, loader) == "here"


def test_a_value_that_is_too_large_is_the_loaders_failure(side: Side) -> None:
    flight, key, loader = Flight(side, size_max=10), side.name(), Loader("é" * 9)
    with pytest.raises(InvalidInput, match=f"^the value of '{key}' has 56 bytes; the maximum is 10$"):
        flight.get(key, loader)
    with pytest.raises(LoaderFailed, match="56 bytes"):
        flight.get(key, loader)
    assert flight.get(side.name(), Loader("a" * 8)) == "a" * 8


def test_a_kept_value_that_load_cannot_read_is_a_miss(side: Side) -> None:
    key, loader = side.name(), Loader({"release": 2})
    old = Flight(side, dump=repr, load=str)
    assert old.get(key, Loader({"release": 1})) == "{'release': 1}"
    new = Flight(side)
    assert new.peek(key, default="nothing") == "nothing"
    assert [new.get(key, loader) for _ in range(3)] == [{"release": 2}] * 3
    assert (loader.calls, is_free(side, key)) == (1, True)


def test_only_the_value_that_was_read_is_dropped(side: Side) -> None:
    key = side.name()
    flight = Flight(side)
    flight.get(key, Loader("new"))
    assert side.execute(op.ForgetCached(key, only=Cached("text", '"old"'))) == Forgotten(was_kept=False)
    assert flight.peek(key) == "new"
    assert side.execute(op.ForgetCached(key, only=Cached("text", '"new"'))) == Forgotten(was_kept=True)
    assert flight.peek(key) is None


def test_a_kept_value_is_read_although_the_servers_memory_is_full(store: RedisStore) -> None:
    flight = single_flight(store, keep=60)
    assert flight.get("kept", lambda: "value") == "value"
    store.client.config_set("maxmemory", 1)
    try:
        assert flight.get("kept", lambda: "another") == "value"
        with pytest.raises(StoreRefused, match="memory"):
            flight.get("missing", lambda: "value")
    finally:
        store.client.config_set("maxmemory", 0)
    assert flight.get("missing", lambda: "value") == "value"


def test_what_is_kept_can_be_looked_at_without_loading(side: Side) -> None:
    flight, key = Flight(side), side.name()
    assert flight.peek(key, default="nothing") == "nothing"
    flight.get(key, Loader(None))
    assert flight.peek(key, default="nothing") is None
    other = side.name()
    with pytest.raises(ValueError, match="odd"):
        flight.get(other, Loader(ValueError("odd")))
    with pytest.raises(LoaderFailed, match="ValueError: odd"):
        flight.peek(other)


def test_a_loader_that_asks_for_its_own_key_is_told_so_in_time(side: Side) -> None:
    flight, inner, key = Flight(side), Flight(side, timeout=0), side.name()
    with pytest.raises(AcquireTimeout):
        flight.get(key, lambda: inner.get(key, Loader()))
    with pytest.raises(LoaderFailed, match="AcquireTimeout"):
        flight.get(key, Loader())


def test_a_refresh_that_fails_leaves_the_old_value_and_is_held_off(
    side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    flight, key = Flight(side, refresh_ahead=59.9, keep_failures=60), side.name()
    flight.get(key, Loader("old"))
    side.pass_time(0.15)
    loader = Loader(ValueError("odd"))
    with caplog.at_level(logging.WARNING, logger="segmented.locks"):
        assert [flight.get(key, loader) for _ in range(3)] == ["old"] * 3
    assert loader.calls == 1
    assert [record.message for record in caplog.records] == ["flight.refresh_failed"]
    assert is_free(side, key)


# --- as a decorator ---


def test_a_coroutine_function_is_kept_too() -> None:
    async def run() -> list[int]:
        calls: list[str] = []
        flight = single_flight(AsyncMemoryStore(), keep=60)

        @flight("price:{sku}")
        async def price(sku: str) -> int:
            calls.append(sku)
            number = len(calls)
            await asyncio.sleep(0)
            return number

        return list(await asyncio.gather(*(price("shirt") for _ in range(100)), price("shoe")))

    assert asyncio.run(run()) == [1] * 100 + [2]


def test_what_cannot_be_kept_is_refused_at_the_decoration() -> None:
    flight, asynchronous = single_flight(MemoryStore(), keep=60), single_flight(AsyncMemoryStore(), keep=60)

    async def coroutine(sku: str) -> str:
        return sku

    def function(sku: str) -> str:
        return sku

    def generator(sku: str) -> Any:  # noqa: ANN401  # a generator
        yield sku

    refused: list[tuple[Any, Any, str]] = [
        (flight, coroutine, "keeps what a function returns, and .*coroutine is a coroutine function"),
        (flight, generator, "keeps what a function returns, and .*generator is a generator function"),
        (asynchronous, function, "keeps what a coroutine function returns, and .*function is a function"),
    ]
    for decorate, wrong, kind in refused:
        with pytest.raises(InvalidInput, match=f"^a single flight {kind}$"):
            decorate("{sku}")(wrong)
    with pytest.raises(InvalidInput, match="'size' is not an argument; there are sku"):
        flight("{size}")(function)


def test_a_callable_gives_the_store_when_a_call_needs_it() -> None:
    asked: list[str] = []
    store = MemoryStore()

    def give() -> MemoryStore:
        asked.append("store")
        return store

    flight = SingleFlight(give, FlightOptions(keep=60))
    assert asked == []
    assert flight.get("shirt", lambda: 1) == 1
    with pytest.raises(InvalidInput, match="needs a store, and got <function"):
        single_flight(give, keep=60)  # type: ignore[call-overload]  # what is tested
    with pytest.raises(InvalidInput, match=r"needs a store for asyncio, such as AsyncRedisStore, and got MemoryStore$"):
        AsyncSingleFlight(store, FlightOptions(keep=60))  # type: ignore[arg-type]  # what is tested


# --- trouble ---


class SilentWriteStore(MemoryStore):
    """A store that does not answer writes."""

    def execute(self, operation: Operation[Any], **options: Any) -> Any:  # noqa: ANN401  # the operation's own answer
        if isinstance(operation, op.WriteCached):
            raise StoreUnavailable("no answer")
        return super().execute(operation, **options)


def test_a_value_that_could_not_be_kept_is_given_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    flight = single_flight(SilentWriteStore(), keep=60)
    with caplog.at_level(logging.WARNING, logger="segmented.locks"):
        assert [flight.get("shirt", Loader(1, 2)), flight.get("shirt", Loader(3))] == [1, 3]
    assert [record.message for record in caplog.records] == ["flight.not_kept"] * 2


def test_a_caller_that_is_cancelled_while_it_loads_lets_the_next_one_load() -> None:
    async def run() -> str:
        store, began = AsyncMemoryStore(), asyncio.Event()
        flight = single_flight(store, keep=60)

        async def sleep() -> str:
            began.set()
            await asyncio.Event().wait()
            return "slept"

        async def load() -> str:
            return "loaded"

        loading = asyncio.create_task(flight.get("shirt", sleep))
        await began.wait()
        waiting = asyncio.create_task(flight.get("shirt", load))
        while not lines_of(store):  # noqa: ASYNC110  # nobody tells it
            await asyncio.sleep(0)
        loading.cancel()
        found = await waiting
        assert loading.cancelled()
        assert await AsyncLock(store, "shirt").try_acquire() is not None
        return found

    assert asyncio.run(run()) == "loaded"


def test_the_first_caller_gets_its_own_error_and_the_next_are_told_of_it_for_a_while(side: Side) -> None:
    flight, key, error = Flight(side, keep=600, keep_failures=60), side.name(), KeyError("no such sku")
    loader = Loader(error, "here")
    with pytest.raises(KeyError) as caught:
        flight.get(key, loader)
    assert caught.value is error
    for _ in range(2):
        with pytest.raises(LoaderFailed) as told:
            flight.get(key, loader)
        assert (told.value.name, told.value.kind, told.value.detail) == (key, "KeyError", "'no such sku'")
        assert str(told.value) == f"the loader of {key!r} failed a moment ago: KeyError: 'no such sku'"
    assert loader.calls == 1


def test_every_caller_gets_the_same_shape_the_one_that_loaded_too(side: Side) -> None:
    flight, key, loader = Flight(side), side.name(), Loader({"size": (1, 2), 3: "three"})
    expected = {"size": [1, 2], "3": "three"}
    assert [flight.get(key, loader), flight.get(key, loader)] == [expected, expected]


# Operations on cached values, on every store and in both colours.


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
