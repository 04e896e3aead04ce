"""Every strategy of the bench sells by itself here: exact numbers, the same for all but where a fault is known."""

from __future__ import annotations

import re
import threading
import time
from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import NullPool, create_engine, func, inspect, make_url, select, text

from bench.engine.cell import Cell
from bench.engine.checker import broken_promises, check
from bench.engine.sale import Sale
from bench.sections import Section
from bench.strategies import STRATEGIES
from bench.strategies.base import Refused, Sold, StrategyContext
from bench.strategies.counted import metadata as counted_metadata, unguarded_orders
from bench.strategies.pg_rows import metadata as sql_metadata
from segmented.models import Order
from segmented.orders import Gate, connect
from segmented.orders.tables import orders, segments
from segmented.stores.redis import RedisStore
from tests.support.rings import require_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.engine.record import Checker
    from bench.sections import Kind
    from bench.strategies.base import Strategy

    Open = Callable[..., Strategy]

LIBRARIES = {"global-python-redis-lock": "redis_lock", "global-pottery": "pottery"}
CELERY = ["celery-one", "celery-batched"]
IN_SQL = [name for name, strategy in STRATEGIES.items() if strategy.needs_database]
EXACT = [name for name in STRATEGIES if name not in {"segments-random", *CELERY}]
SAFE = [name for name in EXACT if name != "no-lock"]
BUYERS = 6


@pytest.fixture(scope="module")
def bench_database(postgres_url: str) -> Iterator[str]:
    """Make one database for all of these tests; each has a sku of its own."""
    administrator = create_engine(postgres_url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with administrator.connect() as connection:
        connection.execute(text("CREATE DATABASE bench_strategies"))
    yield make_url(postgres_url).set(database="bench_strategies").render_as_string(hide_password=False)
    with administrator.connect() as connection:
        connection.execute(text("DROP DATABASE bench_strategies WITH (FORCE)"))


@pytest.fixture
def open_sale(request: pytest.FixtureRequest, valkey_url: str) -> Iterator[Open]:
    """Open a strategy on servers of the session; the order database is there where it is asked for."""
    with ExitStack() as stack:
        store = stack.enter_context(RedisStore.from_url(f"{valkey_url}&max_connections=60"))

        def open_one(name: str, stock: int, *, section: Section, segments: int = 3, batch: int = 1) -> Strategy:
            if name in LIBRARIES:
                require_module(name, LIBRARIES[name])
            engine = None
            if name in IN_SQL or section.commits:
                engine = connect(request.getfixturevalue("bench_database"), pool_size=BUYERS)
                stack.callback(engine.dispose)
                Gate(engine).create()
                counted_metadata.create_all(engine)
            url = f"{valkey_url}&max_connections=60"
            context = StrategyContext(
                store=store, engine=engine, segments=segments, buyers=BUYERS, section=section, batch=batch, url=url
            )
            strategy = STRATEGIES[name](context)
            stack.callback(strategy.close)
            stack.callback(strategy.clear)
            strategy.open(sku_of(request.node.name), stock)
            return strategy

        yield open_one


def sku_of(test: str) -> str:
    """Return a sku that no other test has; `fnmatch` of Redis must take it as it is."""
    return "bench-" + re.sub(r"\W+", "-", test).strip("-")


def rows_of(strategy: Strategy) -> int:
    """Count rows that are left in the order database, and tables that should be gone."""
    assert strategy.context.engine is not None
    with strategy.context.engine.connect() as connection:
        kept = (unguarded_orders, orders, segments)
        rows = sum(connection.execute(select(func.count()).select_from(table)).scalar_one() for table in kept)
    return rows + len(set(inspect(strategy.context.engine).get_table_names()) & set(sql_metadata.tables))


def sale_of(strategy: Strategy, *, batch: int = 1, kind: Kind = "none") -> Sale:
    return Sale(Cell(strategy=strategy.name, segments=3, batch=batch, section=kind, buyers=BUYERS), strategy)


def checked(sale: Sale, stock: int) -> Checker:
    verdict = sale.strategy.judge(sale.recorder.judged)
    return check(sale.recorder, verdict, opened=stock, stocked=stock, quantity=1, cancelled=0)


def crowd(sale: Sale, *, until: Callable[[], bool]) -> None:
    """Buy from many threads."""

    def buy(number: int) -> None:
        while not until():
            sale.call(number)

    buyers = [threading.Thread(target=buy, args=[number]) for number in range(BUYERS)]
    for buyer in buyers:
        buyer.start()
    for buyer in buyers:
        buyer.join(200)


@pytest.mark.parametrize("name", EXACT)
def test_one_buyer_gets_all_units_with_a_commit_each_and_then_right_refusals(
    name: str, open_sale: Open, request: pytest.FixtureRequest
) -> None:
    strategy = open_sale(name, 5, section=Section("commit"))
    sale = sale_of(strategy, kind="commit")
    began = time.monotonic()
    for _ in range(7):
        sale.call(0)
    ended = time.monotonic()
    assert (list(sale.recorder.sold), list(sale.recorder.sold_out)) == ([1] * 5 + [0] * 2, [0] * 5 + [1] * 2)
    verdict = strategy.judge(sale.recorder.judged)
    assert (verdict.sold, verdict.available, verdict.sold_in_sql) == (5, 0, 5)
    assert verdict.sold_ids == frozenset("12345")
    assert verdict.left == ((0, 0, 0) if strategy.segments == 3 else (0,) if name == "global-lock" else ())
    assert broken_promises(checked(sale, 5), sale.recorder.failures, failed=sale.unfinished_count) == ()
    pairs = zip(sale.recorder.granted, sale.recorder.freed, strict=True)
    assert [began < granted < freed < ended for granted, freed in pairs] == [True] * 5 + [False] * 2
    strategy.clear()
    assert strategy.context.store.client.keys(f"*{sku_of(request.node.name)}*") == []
    assert rows_of(strategy) == 0


@pytest.mark.parametrize("name", SAFE)
def test_many_buyers_sell_exactly_a_stock_that_the_segments_do_not_divide(name: str, open_sale: Open) -> None:
    strategy = open_sale(name, 17, section=Section("sleep", 1))
    sale = sale_of(strategy)
    crowd(sale, until=lambda: len(sale.recorder.refusals) >= BUYERS)
    found = checked(sale, 17)
    assert (found.sold, len(sale.recorder.sold_numbers), found.duplicates, found.lost) == (17, 17, 0, 0)
    assert broken_promises(found, sale.recorder.failures, failed=sale.unfinished_count) == ()
    assert sum(strategy.free_by_segment()) == 0
    if strategy.has_segments and name not in {"lock-free", "segment-batches"}:
        assert set(sale.recorder.segment) >= {0, 1, 2}


def test_without_a_lock_the_last_unit_is_sold_twice(open_sale: Open) -> None:
    both_have_read = threading.Barrier(2, timeout=100)

    class BothHaveRead(Section):
        def run(self) -> None:
            both_have_read.wait()

    sale = sale_of(open_sale("no-lock", 1, section=BothHaveRead("none")))
    buyers = [threading.Thread(target=sale.call, args=[number]) for number in range(2)]
    for buyer in buyers:
        buyer.start()
    for buyer in buyers:
        buyer.join()
    found = checked(sale, 1)
    assert (found.sold, found.oversold) == (2, 1)
    assert broken_promises(found, (), failed=0) == ("oversold by 1 unit",)


def test_a_segment_at_random_refuses_while_others_have_units(open_sale: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = Random(5)  # 2, 1, 2, 1, 2: the fifth order meets a segment that two orders have emptied
    monkeypatch.setattr("bench.strategies.counted.random", draws)
    strategy = open_sale("segments-random", 7, section=Section("none"))
    sale = sale_of(strategy)
    for _ in range(5):
        sale.call(0)
    assert (list(sale.recorder.sold), list(sale.recorder.sold_out)) == ([1, 1, 1, 1, 0], [0, 0, 0, 0, 1])
    assert list(strategy.free_by_segment()) == [3, 0, 0]
    found = checked(sale, 7)
    assert (found.refused_wrongly, found.stranded) == (1, 3)
    while len(sale.recorder.sold_numbers) < 7:
        sale.call(0)
    last = checked(sale, 7)
    assert (last.sold, last.stranded) == (7, 0)
    assert last.refused_wrongly == len(sale.recorder.refusals)


@pytest.mark.parametrize("kind", ["none", "commit"])
def test_a_batch_has_one_slow_step_and_exact_answers(kind: Kind, open_sale: Open) -> None:
    runs = []

    class Counted(Section):
        def run(self) -> None:
            runs.append(1)

    sale = sale_of(open_sale("segment-batches", 20, section=Counted(kind), batch=8), batch=8, kind=kind)
    for _ in range(4):
        sale.call(0)
    assert len(runs) == 3
    assert (list(sale.recorder.sold), list(sale.recorder.sold_out)) == ([8, 8, 4, 0], [0, 0, 4, 8])
    assert broken_promises(checked(sale, 20), sale.recorder.failures, failed=sale.unfinished_count) == ()


@pytest.mark.parametrize("name", ["one-script", "redis-function", *IN_SQL])
def test_an_order_that_is_repeated_has_one_effect(name: str, open_sale: Open) -> None:
    strategy = open_sale(name, 2, section=Section("none"), segments=1)
    orders = [Order(order_id, 1) for order_id in ("again", "again", "last", "again", "last", "late")]
    assert [type(strategy.buy(order)) for order in orders] == [Sold] * 5 + [Refused]
    verdict = strategy.judge([])
    assert (verdict.sold, verdict.available, verdict.sold_ids) == (2, 0, frozenset({"again", "last"}))


def test_stripes_refuse_an_order_only_once_no_counter_has_its_units(
    open_sale: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy: Any = open_sale("striped-redis-py", 5, section=Section("none"))  # 2, 2, 1
    drawn = []

    def last(stripes: list[int]) -> int:
        drawn.append(list(stripes))
        return stripes[-1]

    monkeypatch.setattr("bench.strategies.library_lock.random.choice", last)
    assert [type(strategy.buy(Order(name, 2))) for name in "abc"] == [Sold, Sold, Refused]
    assert drawn == [[0, 1, 2], [0, 1], [0, 1, 2], [0], [0, 1, 2]]
    assert strategy.units_left() == (0, 0, 1)


def test_real_workers_sell_exactly_the_stock_with_a_commit_each(open_sale: Open) -> None:
    strategy: Any = open_sale("celery-batched", 7, section=Section("commit", 1))
    sale = sale_of(strategy, kind="commit")
    crowd(sale, until=lambda: len(sale.recorder.refusals) >= BUYERS)
    found = checked(sale, 7)
    assert (found.sold, found.sold_in_sql, len(sale.recorder.sold_numbers)) == (7, 7, 7)
    under_a_lock = [one.fencing_token is not None for one in strategy.pool.read_ledger() if one.kind == "confirmed"]
    assert under_a_lock == [True] * 7
    assert broken_promises(found, sale.recorder.failures, failed=sale.unfinished_count) == ()
