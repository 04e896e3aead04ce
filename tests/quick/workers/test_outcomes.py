"""A worker's program is told how each order ended, at least once, and why."""

from collections.abc import Iterator
from typing import Any

import pytest

from segmented import Order, Outbox, Pool
from segmented.celery import chores, connections as opening, settings as current, tasks
from segmented.celery.settings import WorkerSettings
from segmented.errors import InvalidInput
from segmented.keys import due_key
from segmented.models.submitted import BegunOrder
from segmented.orders import Gate, relay, reopen_gated
from segmented.orders.envelopes import Decline, WorkTerms, take_envelope
from segmented.orders.outcomes import tell_outcomes
from segmented.orders.sale import take_order
from segmented.servers import ValkeyServer
from segmented.stores.redis import RedisStore
from tests.quick.orders.conftest import store

__all__ = ["store"]
SKU = "mug"
Told = list[tuple[str, str, str]]


@pytest.fixture
def gate(order_database: str) -> Iterator[Gate]:
    with Gate(order_database) as made:
        yield made


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """Ten units in two segments."""
    made = Pool(store, SKU, gate=gate, outbox=Outbox())
    made.open(stock=10, segments=2)
    return made


def told(pool: Pool, gate: Gate, fails_on: str = "") -> Told:
    """Relay, and tell what ended; the program fails for one order."""
    said: Told = []

    def tell(order_id: str, state: str, reason: str) -> None:
        said.append((order_id, state, reason))
        if order_id == fails_on:
            raise ConnectionError

    relay(pool, gate)
    try:
        tell_outcomes(pool, gate, tell, goes_on=lambda: True)
    except ConnectionError:
        said.append(("", "failed", ""))
    return said


heard: Told = []


def hear(order_id: str, state: str, reason: str) -> None:
    """What the worker's variable names."""
    heard.append((order_id, state, reason))


@pytest.fixture
def worker(pool: Pool, order_database: str, valkey: ValkeyServer) -> Iterator[Pool]:
    """The pool, in a process with a worker's settings."""
    named: dict[str, Any] = {"url": valkey.url, "database": order_database, "broker_on_stock_server": True}
    current.use(WorkerSettings(**named, on_outcome=f"{__name__}:hear"))
    chores.adopted_until.clear()
    tasks.on_outcome.cache_clear()
    yield pool
    opening.disconnect()
    current.use(None)
    tasks.on_outcome.cache_clear()


def test_the_worker_calls_what_its_variable_names_for_the_pools_that_it_takes(worker: Pool, store: RedisStore) -> None:
    other = Pool(worker.store, "cup", gate=worker.gate)
    other.open(stock=1, segments=1, queue="elsewhere")
    for pool in (worker, other):
        pool.reserve("a")
        pool.confirm("a")
    for _ in range(2):
        store.client.zadd(due_key("relay"), {SKU: 1, "cup": 1})
        assert chores.relay.run() is not None
    assert heard == [("a", "confirmed", "")]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"on_outcome": "shop"}, "SEGMENTED_ON_OUTCOME is 'shop': it should be module:function"),
        ({"on_outcome": "shop:tell"}, "SEGMENTED_ON_OUTCOME needs SEGMENTED_DATABASE"),
        ({"on_outcome": "a:b", "database": "sqlite:///a", "relay_every": 0}, "SEGMENTED_RELAY_EVERY above 0"),
    ],
)
def test_a_function_that_could_not_be_called_is_refused_at_the_start(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        WorkerSettings(**wrong)


def pay(begun: BegunOrder) -> None:
    match begun.order.order_id:
        case "declined":
            raise Decline("card\nrefused")
        case "dead":
            raise ValueError("no such address")


def test_each_order_that_ends_is_reported_once_with_its_state_and_reason(
    pool: Pool, gate: Gate, store: RedisStore
) -> None:
    pool.submit_many([Order(order_id) for order_id in ("declined", "dead", "sold")])
    take_envelope(pool.plain, ["declined", "dead", "sold"], gate=gate, step=pay, terms=WorkTerms(begun_max=1))
    for order_id in ("by hand", "back", "late", "cancelled"):
        pool.reserve(order_id)
    pool.confirm("by hand")
    pool.confirm("back")
    pool.return_units("back", 1, return_id="rma 17")
    pool.cancel("cancelled")
    store.client.zadd(f"seg:{{{SKU}:0}}:holds", {"late": 1}, xx=True)
    pool.expire()
    take_order(pool, gate, Order("refused", 11), timeout=1, keep_refusal=True)
    assert sorted(told(pool, gate)) == [
        ("back", "confirmed", ""),
        ("back", "returned", "rma 17"),
        ("by hand", "confirmed", ""),
        ("cancelled", "cancelled", ""),
        ("dead", "dead", "ValueError: no such address"),
        ("declined", "declined", "card refused"),
        ("late", "expired", ""),
        ("refused", "refused", ""),
        ("sold", "confirmed", ""),
    ]
    assert gate.orders(SKU, ["declined"])["declined"].reason == "card refused"
    assert told(pool, gate) == []
    pool.reserve("next")
    pool.confirm("next")
    assert told(pool, gate) == [("next", "confirmed", "")]


def test_a_program_that_fails_is_told_again_from_that_order_on(pool: Pool, gate: Gate) -> None:
    for order_id in "abc":
        pool.reserve(order_id)
        pool.confirm(order_id)
    failed = ("", "failed", "")
    assert told(pool, gate, fails_on="b") == [("a", "confirmed", ""), ("b", "confirmed", ""), failed]
    assert told(pool, gate, fails_on="b") == [("b", "confirmed", ""), failed]
    assert told(pool, gate) == [("b", "confirmed", ""), ("c", "confirmed", "")]


def test_what_a_lost_ledger_does_not_say_the_order_database_says_after_a_rebuild(
    pool: Pool, gate: Gate, store: RedisStore
) -> None:
    pool.reserve("a")
    pool.confirm("a")
    assert told(pool, gate) == [("a", "confirmed", "")]
    pool.reserve("b", quantity=2)
    gate.confirm(order_id="b", sku=SKU, segment=0, quantity=2, epoch=1)
    store.client.flushdb()
    reopen_gated(pool.plain, gate, segments=2, epoch=2)
    pool.reserve("c")
    pool.confirm("c")
    assert told(pool, gate) == [("b", "confirmed", ""), ("c", "confirmed", "")]
    assert told(pool, gate) == []
