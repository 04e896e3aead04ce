"""The scripts on a real server: each loads, and each touches the keys that the key module names and no others."""

import asyncio
import pkgutil
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import is_dataclass, replace
from importlib import import_module
from itertools import count
from typing import Any, Final

import pytest
import redis

from segmented import protocol as op
from segmented.keys import lock_keys, shard_keys
from segmented.models import Acquired, Held, Order, Renewed
from segmented.plans.drivers import AsyncStore
from segmented.protocol.wire import load_script, text
from segmented.servers import ValkeyServer
from segmented.stock import AsyncPool
from segmented.stores.memory import AsyncMemoryStore
from segmented.stores.redis import RedisStore
from tests.fixtures.suite import SCRIPTS
from tests.support.paths import ROOT
from tests.support.written.bench import Stand, Step
from tests.support.written.damage import odd_arguments
from tests.support.written.stories import STORIES

SKU = "a{b}c"
NAME = "n{a}me"
POOL, LOCK = shard_keys(SKU), lock_keys(NAME)
POOL_KEYS = {POOL.meta, POOL.stock, POOL.free, POOL.ledger}


def keys_of(store: RedisStore) -> set[str]:
    return {text(key) for key in store.client.keys("*")}


def test_each_script_starts_with_its_flags_and_loads_under_the_digest_we_ask_for(store: RedisStore) -> None:
    for script in map(load_script, SCRIPTS):
        assert script.text.startswith("#!lua"), script
        assert store.client.script_load(script.text) == script.sha


def test_every_operation_is_a_name_of_the_protocol_and_says_how_it_is_sent() -> None:
    folders = {module.name for module in pkgutil.iter_modules(op.__path__) if module.ispkg}
    paths = [path for folder in folders for path in (ROOT / "segmented" / "protocol" / folder).glob("*.py")]
    modules = [import_module(f"{op.__name__}.{path.parent.name}.{path.stem}") for path in paths]
    named = [(name, getattr(module, name)) for module in modules for name in vars(module) if name[0] != "_"]
    known = {
        name for name, kind in named if isinstance(kind, type) and is_dataclass(kind) and issubclass(kind, op.Operation)
    }
    listed = {name: getattr(op, name) for name in op.LATE}
    assert known == {name for name, kind in listed.items() if isinstance(kind, type) and issubclass(kind, op.Operation)}
    assert [
        name for name in known if "call" not in {part for one in listed[name].__mro__[:2] for part in vars(one)}
    ] == []


def test_reading_leaves_no_key(store: RedisStore) -> None:
    store.execute(op.OpenPool(SKU, 10, 4, gated=False))
    for operation in (
        op.ReadPool(SKU),
        op.ListDue(SKU, 10),
        op.ReadOrders(SKU, ("a",)),
        op.ScanOrders(SKU, 0),
        op.ReadLedger(SKU, 0, 10),
        op.InspectOrders(SKU, ("a",)),
        op.ScanKey(SKU, "holds", 0),
        op.ScanKey(SKU, "changes", 0),
        op.ReadCustomers(SKU, ("ann",)),
        op.ReadLedgerStart(SKU),
        op.ReadSubmitted(SKU, ("a",)),
        op.ReadOutbox(SKU),
        op.ListDead(SKU, 0),
        op.ListOutboxes(),
        op.ListPools(),
        op.ListDuePools("sweep", 0),
        op.ReadNextDue(SKU),
        op.ReadAudit(SKU),
        op.ListMessages("queue"),
    ):
        store.execute(operation)
    assert keys_of(store) == POOL_KEYS


@pytest.mark.parametrize(
    ("name", "fence"), [("door", "{door}:seg:fence"), ("a{b}c", "a{b}c:seg:fence"), ("a}b", "a}b:seg:fence")]
)
def test_a_lock_on_a_key_of_the_callers_own_has_that_key_and_its_fence(
    store: RedisStore, name: str, fence: str
) -> None:
    store.execute(op.AcquireLock(name, "h", 60_000, is_key=True))
    assert keys_of(store) == {name, fence}
    assert store.execute(op.RenewLock(name, "h", 90_000, is_key=True)) == Renewed(90_000)
    assert store.execute(op.RenameHolder(name, "h", "i", is_key=True))
    assert store.client.get(name) in (b"i", "i")
    found = store.execute(op.AdoptLock(name, "i", 60_000, is_key=True))
    assert isinstance(found, Acquired)
    assert 60_000 < found.ttl_ms <= 90_000
    store.execute(op.ReleaseLock(name, "i", is_key=True))
    assert keys_of(store) == {fence}


def test_a_waiter_for_a_key_of_the_callers_own_looks_again_within_a_second(store: RedisStore) -> None:
    for ttl_ms in (None, 60_000):
        store.client.set("door", "somebody", px=ttl_ms)
        assert store.execute(op.AcquireLock("door", "h", 60_000, is_key=True)) == Held(1_000)


# What no client of ours sends is refused by the script itself, before anything is written.


UNREAD = {"user_script"}
"""First words of the error for a JSON list that cannot be read, such as one with NaN."""
STORY_OF = {"queue_orders": "outbox"}
"""Script -> the story that calls it, unless it is that of the pool."""


@pytest.fixture
def stand(valkey: ValkeyServer) -> Iterator[Stand]:
    with redis.Redis.from_url(valkey.url) as server:
        yield Stand(server)


def steps_of(stand: Stand, name: str) -> list[Step]:
    return [step for step in stand.steps(STORIES[STORY_OF.get(name, "pool")]) if step.name == name]


QUANTITIES = {"reserve": 5, "grant": 2, "queue_orders": 3, "restock": 3, "open_pool": 2, "resize": 1}
"""Script -> the argument with a quantity, units or segments."""


@pytest.mark.parametrize("name", QUANTITIES)
def test_a_quantity_below_one_or_no_whole_number_is_refused_by_the_script_itself(stand: Stand, name: str) -> None:
    step = next(step for step in steps_of(stand, name) if not isinstance(stand.run(step)[0], Exception))
    told = {
        place: str(stand.run(odd)[0]).partition(":")[0]
        for place, odd in odd_arguments(step)
        if place.startswith(f"{QUANTITIES[name]}: ") and "9007199254740993" not in place
    }
    assert len(told) == 8
    assert {said for said in told.values() if not said.startswith("INVALID ")} <= UNREAD, told


OTHERS: Final[dict[str, dict[int, tuple[str, ...]]]] = {
    "reserve": {
        4: ("[5]", '["a\\tb"]', '["a\\nb"]', '["a\tb"]', '["a\nb"]', '["\\u0009"]', "[null]"),
        6: ("[7]", '["a\\tb"]'),
    },
    "settle": {1: ("bogus", "", "reserved"), 3: ("[5]", '["a\\tb"]')},
    "restock": {1: ("a\tb",), 2: ("bogus", "", "sold")},
    "grant": {1: ("a\tb", "a\nb")},
}
"""Script -> argument -> what no caller of ours sends there."""


@pytest.mark.parametrize("name", OTHERS)
def test_an_id_that_is_not_plain_text_or_an_unknown_state_is_refused_before_writes(stand: Stand, name: str) -> None:
    steps, told = steps_of(stand, name), []
    for place, others in OTHERS[name].items():
        step = next(
            one for one in steps if len(one.call.arguments) > place + 1 and not isinstance(stand.run(one)[0], Exception)
        )
        for other in others:
            arguments = [*step.call.arguments]
            arguments[place - 1] = other
            odd = replace(step, call=replace(step.call, arguments=arguments))
            told.append((place, other, str(stand.run(odd)[0]).partition(" ")[0], stand.half_written(odd)))
    assert [one for one in told if one[2:] != ("INVALID", [])] == []


# `async with` in both its forms.


_numbers = count()


def new_name() -> str:
    return f"async-form-{next(_numbers)}"


def run(test: Callable[[AsyncStore], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test(AsyncMemoryStore()))


def test_a_grant_is_confirmed_at_the_end_of_the_body_and_cancelled_if_it_raises() -> None:
    async def test(store: AsyncStore) -> None:
        pool = AsyncPool(store, new_name())
        await pool.open(stock=8, segments=2)
        async with pool.grant("a", quantity=3, timeout=30) as grant:
            assert grant.is_trusted
        with pytest.raises(ZeroDivisionError):
            async with pool.grant(Order("b", 2)):
                _ = 1 // 0
        state = await pool.state()
        assert (state.available, state.reserved, state.confirmed) == (5, 0, 3)

    run(test)
