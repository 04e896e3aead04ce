"""The verdicts of the demo's strategies see what is wrong on the servers, and their lanes give the bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Engine, insert

from bench.engine.cell import Cell
from bench.engine.checker import broken_promises, check
from bench.engine.sale import Sale
from bench.sections import Section
from bench.strategies import STRATEGIES
from bench.strategies.base import Refused, Sold, StrategyContext
from bench.strategies.pooled import PooledStrategy
from segmented import protocol as op
from segmented.keys import shard_keys
from segmented.orders import Gate, connect
from segmented.orders.tables import orders
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.strategies.base import Strategy

    Context = Callable[[int], StrategyContext]

STOCK = 5


@pytest.fixture
def engine(order_database: str) -> Iterator[Engine]:
    found = connect(order_database, pool_size=4)
    Gate(found).create()
    yield found
    found.dispose()


@pytest.fixture
def context(valkey_url: str, engine: Engine) -> Iterator[Context]:
    """Make a context for a number of buyers: two segments, and a commit for each order."""
    with RedisStore.from_url(valkey_url) as store:
        yield lambda buyers: StrategyContext(
            store=store, engine=engine, segments=2, buyers=buyers, section=Section("commit"), url=valkey_url
        )


@pytest.fixture
def sku(request: pytest.FixtureRequest) -> str:
    return f"bench {request.node.name}"


def opened(name: str, context: Context, sku: str) -> Strategy:
    strategy = STRATEGIES[name](context(2))
    strategy.open(sku, STOCK)
    return strategy


def sell(strategy: Strategy, count: int) -> Sale:
    sale = Sale(Cell(strategy=strategy.name, section="commit", buyers=2), strategy)
    for _ in range(count):
        sale.call(0)
    return sale


def broken(sale: Sale) -> tuple[str, ...]:
    verdict = sale.strategy.judge(sale.recorder.judged)
    found = check(sale.recorder, verdict, opened=STOCK, stocked=STOCK, quantity=1, cancelled=0)
    return broken_promises(found, sale.recorder.failures, failed=sale.unfinished_count)


def note(sale: Sale, answer: Sold | Refused) -> None:
    """Record an answer that the servers did not give."""
    sale.order_count += 1
    sale.recorder.note(0, sale.order_count, [answer], intended=9.0, asked=9.0, done=9.0, quantity=1)


def test_a_refusal_while_units_were_free_is_found(context: Context, sku: str) -> None:
    strategy = opened("segment-locks", context, sku)
    sale = sell(strategy, 2)
    assert isinstance(strategy, PooledStrategy)
    state = strategy.context.store.execute(op.ReadPool(strategy.pool.sku))
    note(sale, Refused(sequence=state.sequence, quantity=1))
    assert broken(sale) == ("orders refused while units were free: 1", "units that no order can get: 3")


def test_units_sold_behind_the_gates_back_are_found_in_sql(context: Context, engine: Engine, sku: str) -> None:
    strategy = opened("segment-locks", context, sku)
    sale = sell(strategy, 6)
    extra = {"sku": sku, "order_id": "extra", "state": "confirmed", "quantity": 2, "segment": 0, "epoch": 1}
    with engine.begin() as connection:
        connection.execute(insert(orders), extra)
    verdict = strategy.judge(sale.recorder.judged)
    assert (verdict.sold, verdict.sold_in_sql, verdict.oversold_in_sql) == (5, 7, 2)
    assert broken(sale) == ("oversold by 2 units", "the pool has 5 units sold and the order database 7")


def test_units_sold_behind_the_ledgers_back_are_found_in_redis(context: Context, sku: str) -> None:
    strategy = opened("segment-locks", context, sku)
    sale = sell(strategy, 5)
    strategy.context.store.client.hincrby(shard_keys(sku).meta, "confirmed", 3)
    verdict = strategy.judge(sale.recorder.judged)
    assert (verdict.sold, verdict.oversold_in_redis) == (8, 3)
    assert verdict.audit.startswith("foreign write: confirmed is 8, the ledger says 5; ")
    found = broken(sale)
    assert found[0] == "oversold by 3 units"
    assert found[-1].startswith("the audit is not clean: ")


def test_an_acknowledgement_that_nobody_confirmed_is_found(context: Context, sku: str) -> None:
    sale = sell(opened("segment-locks", context, sku), 3)
    note(sale, Sold(0.0))
    assert broken(sale) == ("orders acknowledged and not known to the servers: 1",)


def test_a_hundred_errors_end_the_sale(context: Context, sku: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sale = sell(opened("segment-locks", context, sku), 0)

    def fail(_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(sale.strategy, "buy_batch", fail)
    for _ in range(99):
        sale.call(0)
    assert not sale.over.is_set()
    sale.call(0)
    assert sale.over.is_set()
    assert broken(sale) == ()  # what failed is counted beside the promises
    assert (len(sale.recorder.failures), sale.unfinished_count) == (100, 0)
