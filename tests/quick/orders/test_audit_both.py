"""A gated pool and its order database are compared order by order: what differs is named, and nothing else."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Final

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.pool import NullPool

from segmented import Order, Pool, RedisStore, Reserved, Settled
from segmented.errors import PoolFrozen
from segmented.keys import shard_keys
from segmented.orders import BothReport, Difference, Gate, audit_both, rebuild, reopen_gated
from segmented.orders.opening import resize_gated, restock_gated, withdraw_gated
from segmented.orders.sale import cancel_order, expire_voided, finish_reserved, take_order
from segmented.servers import ValkeyServer
from tests.support.command_line import ran
from tests.support.dying import Died, DyingStore, StepCounter
from tests.support.pools.forgetting import forgotten

SKU: Final = "mug"
KEYS: Final = shard_keys(SKU)


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """A hundred units in four segments, on both sides."""
    pool = Pool(store, SKU)
    Pool(pool.store, pool.sku, gate=gate).open(stock=100, segments=4)
    return pool


@pytest.fixture
def execute(order_database: str) -> Iterator[Callable[[str], None]]:
    """Change the database by hand."""
    driver = "sqlite+pysqlite" if order_database.startswith("sqlite") else "postgresql+psycopg"
    engine = create_engine(make_url(order_database).set(drivername=driver), poolclass=NullPool)

    def statement(sql: str) -> None:
        with engine.begin() as connection:
            connection.execute(text(sql))

    yield statement
    engine.dispose()


def sell(pool: Pool, gate: Gate, order_id: str, quantity: int = 1, customer_id: str | None = None) -> None:
    answer = take_order(pool, gate, Order(order_id, quantity, customer_id), timeout=5)
    assert isinstance(answer, Settled)
    assert answer.state == "confirmed"


def sell_and_change(pool: Pool, gate: Gate, name: str) -> None:
    """Do all that a sale does: three sold, one cancelled, one expired, one reserved, and the stock changed."""
    for number in range(3):
        sell(pool, gate, f"{name} sold {number}", number + 1)
    assert isinstance(pool.reserve(f"{name} cancelled", quantity=2), Reserved)
    cancel_order(pool, gate, Order(f"{name} cancelled", 2))
    assert isinstance(Pool(pool.store, SKU, ttl=0.001, hold=0.001).reserve(f"{name} expired"), Reserved)
    while not expire_voided(pool, gate):
        pass
    assert isinstance(pool.reserve(f"{name} reserved", quantity=2), Reserved)
    restock_gated(pool, gate, 10, restock_id=f"{name} in")
    withdraw_gated(pool, gate, 5, withdraw_id=f"{name} out")
    resize_gated(pool, gate, 4 + len(name) % 4)


def check_clean(pool: Pool, gate: Gate, *, unsettled: int = 0) -> BothReport:
    report = audit_both(pool, gate)
    assert (report.differences, report.is_clean, report.unsettled) == ((), True, unsettled)
    assert pool.audit().is_clean
    return report


def write(pool: Pool, key: str, field: str, value: str) -> None:
    assert isinstance(pool.store, RedisStore)
    pool.store.client.hset(key, field, value)


# --- both sides agree ---


def test_a_sale_with_every_change_a_rebuild_and_a_new_opening_is_clean_all_along(pool: Pool, gate: Gate) -> None:
    sell_and_change(pool, gate, "first")
    report = check_clean(pool, gate)
    assert (report.pool_count, report.database_count, report.stocked, report.quota) == (3, 5, 105, 105)
    assert (report.confirmed, report.sold, report.earlier, report.by_kind) == (6, 6, 0, {})
    with forgotten(pool):
        sell_and_change(pool, gate, "lost")
    with pytest.raises(PoolFrozen):
        pool.reserve("next")
    rebuild(pool, gate)
    report = check_clean(pool, gate)
    assert (report.epoch, report.confirmed, report.sold, report.earlier) == (2, 12, 12, 0)
    sell(pool, gate, "lost sold 1", 2)
    sell_and_change(pool, gate, "second")
    check_clean(pool, gate)
    assert isinstance(pool.store, RedisStore)
    pool.store.client.flushdb()
    reopen_gated(pool, gate, segments=4, epoch=3)
    sell_and_change(pool, gate, "third")
    report = check_clean(pool, gate)
    assert (report.confirmed, report.sold, report.earlier) == (6, 24, 18)
    with forgotten(pool):
        sell(pool, gate, "lost again")
    with pytest.raises(PoolFrozen):
        pool.reserve("next")
    rebuild(pool, gate)
    assert check_clean(pool, gate).earlier == 0


def test_an_order_that_is_being_decided_is_unsettled_and_no_difference(pool: Pool, gate: Gate) -> None:
    for order_id in ("sold", "void"):
        assert isinstance(pool.reserve(order_id, quantity=2), Reserved)
    gate.confirm(order_id="sold", sku=SKU, segment=0, quantity=2, epoch=1)
    gate.void(order_id="void", sku=SKU, quantity=2)
    report = check_clean(pool, gate, unsettled=2)
    assert (report.confirmed, report.sold) == (0, 2)
    take_order(pool, gate, Order("sold", 2), timeout=5)
    cancel_order(pool, gate, Order("void", 2))
    check_clean(pool, gate)


@pytest.mark.parametrize("change", ["restock", "withdraw"])
def test_a_change_of_the_stock_that_died_at_any_step_is_unfinished_and_no_difference(
    pool: Pool, gate: Gate, change: str
) -> None:
    def changing(through: Pool, change_id: str) -> None:
        if change == "restock":
            restock_gated(through, gate, 5, restock_id=change_id)
        else:
            withdraw_gated(through, gate, 5, withdraw_id=change_id)

    counter = StepCounter()
    unfinished = 0
    for steps in range(1, 20):
        counter.counted, counter.steps = 0, steps
        with suppress(Died):
            changing(Pool(DyingStore(pool.store, counter), SKU), f"change {steps}")
        counter.steps = None
        report = check_clean(pool, gate)
        unfinished += len(report.unfinished)
        changing(pool, f"change {steps}")
        assert check_clean(pool, gate).unfinished == ()
    assert unfinished > 0


class Interruption(StepCounter):
    """Does something at one step of the audit, and goes on."""

    def __init__(self, action: Callable[[], object], steps: int) -> None:
        super().__init__(steps)
        self.action = action

    def count(self) -> None:
        self.counted += 1
        if self.counted == self.steps:
            self.action()


@pytest.mark.parametrize("action", ["sale", "cancel", "restock", "new opening"])
def test_whatever_happens_between_two_steps_of_an_audit_is_no_difference(pool: Pool, gate: Gate, action: str) -> None:
    assert isinstance(pool.store, RedisStore)
    client = pool.store.client
    epochs = count(2)

    def reopen() -> None:
        client.flushdb()
        reopen_gated(pool, gate, segments=4, epoch=next(epochs))

    for steps in range(1, 100):
        name = f"step {steps}"
        sell(pool, gate, f"{name} before")
        reserved = pool.reserve(f"{name} open")
        assert isinstance(reserved, Reserved)
        restock_gated(pool, gate, 3, restock_id=f"{name} before")
        actions: dict[str, Callable[[], object]] = {
            "sale": lambda name=name, held=reserved: finish_reserved(pool, gate, Order(f"{name} open"), held),  # type: ignore[misc]  # a lambda's defaults have no types
            "cancel": lambda name=name: cancel_order(pool, gate, Order(f"{name} open")),  # type: ignore[misc]  # as above
            "restock": lambda name=name: restock_gated(pool, gate, 1, restock_id=name),  # type: ignore[misc]  # as above
            "new opening": reopen,
        }
        interruption = Interruption(actions[action], steps)
        report = audit_both(Pool(DyingStore(pool.store, interruption), SKU), gate)
        assert (report.differences, report.unsettled) == ((), 0)
        if interruption.counted < steps:
            break
    assert 10 < steps < 99


# --- each difference is named ---


def test_each_order_that_differs_is_named_with_what_both_sides_say(
    pool: Pool, gate: Gate, execute: Callable[[str], None]
) -> None:
    for number in range(5):
        sell(pool, gate, f"agreed {number}", 1, "ann")
    for order_id in ("no row", "void row", "other units", "other buyer", "no record", "given back", "unreadable"):
        sell(pool, gate, order_id, 1, "bob")
    execute("DELETE FROM segmented_orders WHERE order_id = 'no row'")
    execute("UPDATE segmented_orders SET state = 'void' WHERE order_id = 'void row'")
    execute("UPDATE segmented_orders SET quantity = 3 WHERE order_id = 'other units'")
    execute("UPDATE segmented_orders SET customer_id = 'carl' WHERE order_id = 'other buyer'")
    assert isinstance(pool.store, RedisStore)
    client = pool.store.client
    raw = client.hget(KEYS.orders, "given back")
    assert isinstance(raw, (bytes, str))
    record = raw.decode() if isinstance(raw, bytes) else raw
    client.hdel(KEYS.orders, "no record")
    write(pool, KEYS.orders, "given back", f"x{record[1:]}")
    write(pool, KEYS.orders, "unreadable", "nonsense")
    write(pool, KEYS.orders, "no\0id", "c\t1\t0\t1")
    report = audit_both(pool, gate)
    by_bob = "confirmed with 1 unit for customer bob"
    assert {one for one in report.differences if one.kind != "sum"} == {
        Difference("pool only", "no row", by_bob, "nothing"),
        Difference("pool only", "void row", by_bob, "void with 1 unit for customer bob"),
        Difference("pool only", "no\0id", "confirmed with 1 unit", "nothing"),
        Difference("database only", "no record", "nothing", by_bob),
        Difference("database only", "given back", "cancelled with 1 unit for customer bob", by_bob),
        Difference("database only", "unreadable", "what cannot be read", by_bob),
        Difference("content", "other units", by_bob, "confirmed with 3 units for customer bob"),
        Difference("content", "other buyer", by_bob, "confirmed with 1 unit for customer carl"),
    }
    assert report.by_kind == {"pool only": 3, "database only": 3, "content": 2}
    assert (report.is_clean, report.difference_count) == (False, 8)


def test_sums_and_an_epoch_that_differ_are_named(pool: Pool, gate: Gate, execute: Callable[[str], None]) -> None:
    sell(pool, gate, "sold", 2)
    write(pool, KEYS.meta, "confirmed", "3")
    assert [str(one) for one in audit_both(pool, gate).differences] == [
        "sum: the pool says 3 units confirmed, the order database says 2 units sold"
    ]
    write(pool, KEYS.meta, "confirmed", "2")
    write(pool, KEYS.meta, "restocked", "1")
    assert audit_both(pool, gate).differences == (Difference("sum", None, "101 units stocked", "100 units"),)
    write(pool, KEYS.meta, "restocked", "0")
    execute("UPDATE segmented_segments SET sold = sold + 1 WHERE segment = 0")
    assert audit_both(pool, gate).by_kind == {"sum": 2}
    execute("UPDATE segmented_segments SET sold = sold - 1 WHERE segment = 0")
    execute("UPDATE segmented_segments SET epoch = 2")
    assert audit_both(pool, gate).differences == (Difference("epoch", None, "epoch 1", "epoch 2"),)


def test_of_many_differences_a_thousand_are_named_and_all_are_counted(pool: Pool, gate: Gate) -> None:
    assert isinstance(pool.store, RedisStore)
    pool.store.client.hset(KEYS.orders, mapping={f"made up {number}": "c\t1\t0\t1" for number in range(1_500)})
    report = audit_both(pool, gate)
    assert (len(report.differences), report.by_kind) == (1_000, {"pool only": 1_500})


# --- what is refused, and the command ---


def test_the_command_prints_both_reports_and_ends_with_one_if_either_is_not_clean(
    valkey: ValkeyServer, pool: Pool, gate: Gate, order_database: str
) -> None:
    sell(pool, gate, "sold", 2)
    alone = ran("pool", "audit", SKU, url=valkey.url)
    both = ran("pool", "audit", SKU, "--database", order_database, url=valkey.url)
    assert (alone.returncode, both.returncode, both.stderr) == (0, 0, "")
    assert both.stdout.startswith(f"{alone.stdout}\n")
    assert "both sides\tclean, 1 and 1 order compared" in both.stdout.splitlines()
    gate.confirm(order_id="alone", sku=SKU, segment=0, quantity=1, epoch=1)
    restock_id = "half"
    with suppress(Died):
        counter = StepCounter()
        counter.steps = 3  # the database has the restock, and the pool does not
        restock_gated(Pool(DyingStore(pool.store, counter), SKU), gate, 5, restock_id=restock_id)
    both = ran("pool", "audit", SKU, url=valkey.url, database=order_database)
    said = "database only: order alone: the pool says nothing, the order database says confirmed with 1 unit"
    assert (both.returncode, said in both.stdout.splitlines()) == (1, True)
    found = json.loads(ran("pool", "audit", SKU, "--json", "-", url=valkey.url, database=order_database).stdout)
    assert (found["is_clean"], found["database"]["is_clean"]) == (True, False)
    assert found["database"]["differences"][0]["order_id"] == "alone"
    assert [one["change_id"] for one in found["database"]["unfinished"]] == [restock_id]
    assert ran("pool", "audit", SKU, url=valkey.url).returncode == 0
