"""Each strategy sells by itself here, without Locust: exact numbers, and verdicts that see what is wrong."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Engine, func, insert, select

from bench.assignment import Assignment
from bench.sale import Sale, failures, violations
from bench.sections import Section
from bench.strategies import STRATEGIES
from bench.strategies.base import Refused, Sold
from bench.strategies.counted import unguarded_orders
from bench.strategies.pooled import PooledStrategy
from bench.strategies.segment_locks import SegmentLocks
from bench.strategies.unlocked import NoLock
from segmented import protocol as op
from segmented.keys import shard_keys
from segmented.orders import Gate, connect
from segmented.orders.tables import orders, segments
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.strategies.base import Strategy
    from segmented.models import Order

STOCK = 5
POOLED = ["global-lock", "segment-locks", "lock-free"]
DEMO = ["no-lock", *POOLED]


@pytest.fixture
def engine(order_database: str) -> Iterator[Engine]:
    found = connect(order_database, pool_size=4)
    Gate(found).create()
    yield found
    found.dispose()


@pytest.fixture
def store(valkey_url: str) -> Iterator[RedisStore]:
    with RedisStore.from_url(valkey_url) as found:
        yield found


@pytest.fixture
def assignment(order_database: str, valkey_url: str, request: pytest.FixtureRequest) -> Assignment:
    return Assignment(
        strategy="",
        sku=f"bench {request.node.name}",
        url=valkey_url,
        database=order_database,
        segments=2,
        buyers=2,
        extra_hold=0.0,
        seconds=1.0,
    )


def opened(name: str, assignment: Assignment, store: RedisStore, engine: Engine) -> Strategy:
    strategy = STRATEGIES[name](replace(assignment, strategy=name).context(store, engine))
    strategy.open(assignment.sku, STOCK)
    return strategy


def sell(strategy: Strategy, count: int) -> Sale:
    sale = Sale(strategy)
    for _ in range(count):
        sale.note(strategy.buy(sale.next_order()), 0.0, 0.0)
    return sale


@pytest.mark.parametrize("name", DEMO)
def test_one_buyer_gets_all_units_and_then_right_refusals(
    name: str, assignment: Assignment, store: RedisStore, engine: Engine
) -> None:
    strategy = opened(name, assignment, store, engine)
    sale = sell(strategy, 8)
    verdict = strategy.judge(sale.refusals)
    assert (len(sale.sold), len(sale.refusals), sale.refused_by_gate) == (5, 3, 0)
    assert (verdict.sold, verdict.sold_in_sql) == (5, 5)
    assert (verdict.oversold_in_redis, verdict.oversold_in_sql, verdict.refused_wrongly) == (0, 0, 0)
    assert verdict.audit == ("none" if strategy.is_control else "clean")
    assert 0 < strategy.mean_hold(0.0) < 5


def test_without_a_lock_two_buyers_sell_the_last_unit_twice(
    assignment: Assignment, store: RedisStore, engine: Engine
) -> None:
    both_have_read = threading.Barrier(2, timeout=20)

    class BothHaveRead(Section):
        def run(self) -> None:
            both_have_read.wait()

    strategy = NoLock(replace(assignment.context(store, engine), section=BothHaveRead("commit")))
    strategy.open(assignment.sku, 1)
    sale = Sale(strategy)

    def buy(order: Order) -> None:
        sale.note(strategy.buy(order), 0.0, 0.0)

    buyers = [threading.Thread(target=buy, args=[sale.next_order()]) for _ in range(2)]
    for buyer in buyers:
        buyer.start()
    for buyer in buyers:
        buyer.join()
    verdict = strategy.judge([])
    assert (verdict.sold, verdict.oversold_in_sql, verdict.oversold_in_redis) == (2, 1, 0)


@pytest.mark.parametrize(("name", "lanes", "segment_count"), [
    ("no-lock", 1, 1), ("global-lock", 1, 1), ("segment-locks", 2, 2), ("lock-free", 3, 2)
])  # fmt: skip
def test_lanes_are_what_may_be_in_the_slow_step_at_once(
    name: str, lanes: int, segment_count: int, assignment: Assignment, store: RedisStore, engine: Engine
) -> None:
    strategy = STRATEGIES[name](replace(assignment, buyers=3).context(store, engine))
    assert (strategy.lanes, strategy.segments) == (lanes, segment_count)


@pytest.mark.parametrize(("buyers", "lanes"), [(1, 1), (2, 2), (9, 2)])
def test_segments_without_a_buyer_are_no_lanes(
    buyers: int, lanes: int, assignment: Assignment, store: RedisStore, engine: Engine
) -> None:
    assert SegmentLocks(replace(assignment, buyers=buyers).context(store, engine)).lanes == lanes


@pytest.mark.parametrize("name", POOLED)
def test_a_refusal_while_units_were_free_is_found(
    name: str, assignment: Assignment, store: RedisStore, engine: Engine
) -> None:
    strategy = opened(name, assignment, store, engine)
    sale = sell(strategy, 2)
    refusal = Refused(sequence=strategy.context.store.execute(state_of(strategy)).sequence, quantity=1)
    sale.note(refusal, 0.0, 0.0)
    verdict = strategy.judge(sale.refusals)
    assert verdict.refused_wrongly == 1
    assert violations(verdict, sale) == ("orders refused while their units were free: 1",)


def test_the_control_also_finds_a_refusal_while_units_were_free(
    assignment: Assignment, store: RedisStore, engine: Engine
) -> None:
    strategy = opened("no-lock", assignment, store, engine)
    sell(strategy, 2)
    assert strategy.judge([Refused(2, 1), Refused(2, 3), Refused(2, 4)]).refused_wrongly == 2


@pytest.mark.parametrize("name", POOLED)
def test_units_sold_behind_the_gates_back_are_found_in_sql(
    name: str, assignment: Assignment, store: RedisStore, engine: Engine
) -> None:
    strategy = opened(name, assignment, store, engine)
    sale = sell(strategy, 6)
    extra = {
        "sku": assignment.sku, "order_id": "extra", "state": "confirmed", "quantity": 2, "segment": 0, "epoch": 1,
    }  # fmt: skip
    with engine.begin() as connection:
        connection.execute(insert(orders), extra)
    verdict = strategy.judge(sale.refusals)
    assert (verdict.sold, verdict.sold_in_sql, verdict.oversold_in_sql) == (5, 7, 2)
    assert violations(verdict, sale) == ("oversold by 2 units in SQL", "Redis confirmed 5 units and SQL 7")


@pytest.mark.parametrize("name", POOLED)
def test_units_sold_behind_the_ledgers_back_are_found_in_redis(
    name: str, assignment: Assignment, store: RedisStore, engine: Engine
) -> None:
    strategy = opened(name, assignment, store, engine)
    sale = sell(strategy, 5)
    store.client.hincrby(shard_keys(assignment.sku).meta, "confirmed", 3)
    verdict = strategy.judge(sale.refusals)
    assert (verdict.sold, verdict.oversold_in_redis) == (8, 3)
    assert verdict.audit.startswith("foreign write: confirmed is 8, the ledger says 5; ")
    found = violations(verdict, sale)
    assert found[0] == "oversold by 3 units in Redis"
    assert found[-1].startswith("the audit is not clean: ")


def test_an_acknowledgement_that_nobody_confirmed_is_found(
    assignment: Assignment, store: RedisStore, engine: Engine
) -> None:
    strategy = opened("segment-locks", assignment, store, engine)
    sale = sell(strategy, 3)
    sale.note(Sold(0.0), 0.0, 0.0)
    assert violations(strategy.judge([]), sale) == ("acknowledged 4 orders and confirmed 3",)


def test_errors_are_counted_and_a_hundred_end_the_sale(
    assignment: Assignment, store: RedisStore, engine: Engine
) -> None:
    sale = Sale(opened("segment-locks", assignment, store, engine))
    for number in range(99):
        sale.next_order()
        sale.note_failure(RuntimeError(str(number)))
    assert not sale.over.is_set()
    sale.next_order()
    sale.note_failure(RuntimeError("99"))
    assert sale.over.is_set()
    assert failures(sale) == ("orders that ended in an error: 100, the first in RuntimeError: 0",)
    sale.next_order()
    assert failures(sale)[1:] == ("orders that were cut short: 1",)


@pytest.mark.usefixtures("valkey")  # emptied: no key of another test lapses in between
@pytest.mark.parametrize("name", DEMO)
def test_nothing_of_a_sale_is_left_once_it_is_cleared(
    name: str, assignment: Assignment, store: RedisStore, engine: Engine
) -> None:
    keys_before = store.client.dbsize()
    strategy = opened(name, assignment, store, engine)
    sell(strategy, 6)
    strategy.clear()
    assert store.client.dbsize() == keys_before
    with engine.connect() as connection:
        rows = sum(
            connection.execute(
                select(func.count()).select_from(table).where(table.c.sku == assignment.sku)
            ).scalar_one()
            for table in (orders, segments, *([unguarded_orders] if name == "no-lock" else []))
        )
    assert rows == 0


def state_of(strategy: Strategy) -> op.ReadPool:
    assert isinstance(strategy, PooledStrategy)
    return op.ReadPool(strategy.pool.sku)
