"""A gated sale in full swing: segments come and go, units come and go, and both sides agree at the end."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest
from sqlalchemy import text

from segmented import Pool, RedisStore, Reserved, Settled, SoldOut
from segmented.models import Order, Restocked
from segmented.orders.answers import Stored
from segmented.orders.changing import resize_gated, restock_gated, withdraw_gated
from segmented.orders.opening import open_gated
from segmented.orders.sale import cancel_order, finish_reserved, take_order
from segmented.orders.stocking import Change
from tests.support.pools.gating import NEW, confirm, watch_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.orders import Gate
    from segmented.servers import ValkeyServer

BUYERS: Final = 6
STOCK: Final = 400
SIZES: Final = (12, 3, 17, 1, 8, 24, 5, 2, 16, 4)
WAIT: Final = 120.0


class Sale:
    """Buyers in threads, each with orders of its own, until the last change is done; what they were told is kept."""

    def __init__(self, pool: Pool, gate: Gate) -> None:
        self.pool = pool
        self.gate = gate
        self.is_changing = threading.Event()
        self.is_changing.set()
        self.confirmed: dict[str, int] = {}
        self.refused: dict[str, int] = {}

    def buy(self, buyer: int) -> None:
        dice = random.Random(buyer)
        number = 0
        while self.is_changing.is_set() or number < 20:
            number += 1
            order = Order(f"o-{buyer}-{number}", dice.choice((1, 1, 1, 2, 3, 7)))
            if dice.random() < 0.2:
                self.buy_without_a_lock(order, gives_back=dice.random() < 0.5)
                continue
            answer = take_order(self.pool, self.gate, order, timeout=WAIT, keep_refusal=True)
            if isinstance(answer, Settled):
                assert answer.state == "confirmed"
                self.confirmed[order.order_id] = order.quantity
                if dice.random() < 0.1:
                    again = take_order(self.pool, self.gate, order, timeout=WAIT)
                    assert isinstance(again, Settled)
                    assert (again.state, again.replay) == ("confirmed", True)
            else:
                assert isinstance(answer, SoldOut)
                self.refused[order.order_id] = order.quantity

    def buy_without_a_lock(self, order: Order, *, gives_back: bool) -> None:
        """Reserve, then pay or give back: returns flow while segments go away."""
        reserved = self.pool.reserve(order)
        if not isinstance(reserved, Reserved):
            assert isinstance(reserved, SoldOut)
            return
        if gives_back:
            assert cancel_order(self.pool, self.gate, order).state == "cancelled"
            return
        assert finish_reserved(self.pool, self.gate, order, reserved).state == "confirmed"
        self.confirmed[order.order_id] = order.quantity

    def change(self) -> int:
        """Resize, restock and withdraw, each twice; returns the units that are stocked in the end."""
        stocked = STOCK
        try:
            for number, size in enumerate(SIZES):
                for _ in range(2):
                    resize_gated(self.pool, self.gate, size)
                    restock_gated(self.pool, self.gate, 30, restock_id=f"in-{number}")
                stocked += 30
                answers = [withdraw_gated(self.pool, self.gate, 10, withdraw_id=f"out-{number}") for _ in range(2)]
                stocked -= 10 * any(isinstance(answer, Restocked) for answer in answers)
        finally:
            self.is_changing.clear()
        return stocked


@pytest.fixture
def pool(valkey: ValkeyServer) -> Iterator[Pool]:
    with RedisStore.from_url(valkey.url) as store:
        yield Pool(store, "mug", ttl=600)


def test_segments_and_units_come_and_go_under_six_buyers(
    pool: Pool, postgres_database: str, open_gate: Callable[..., Gate]
) -> None:
    gate = open_gate(postgres_database, timeout=WAIT)
    open_gated(pool, gate, stock=STOCK, segments=4)
    errors = watch_errors(gate)
    sale = Sale(pool, gate)
    with ThreadPoolExecutor(BUYERS + 1) as threads:
        buying = [threads.submit(sale.buy, buyer) for buyer in range(BUYERS)]
        stocked = threads.submit(sale.change).result()
        for one in buying:
            one.result()
    state, totals, report = pool.state(), gate.totals("mug"), pool.audit()
    assert sum(sale.confirmed.values()) == totals.sold == state.confirmed == gate.confirmed_units("mug")
    assert (totals.quota, state.stocked, state.reserved) == (stocked, stocked, 0)
    assert len(totals.segments) == max(SIZES)
    assert (report.is_clean, report.oversold, report.refused_wrongly) == (True, 0, 0)
    assert [row.change_id for row in gate.unfinished_changes("mug") if row.kind == "restocked"] == []
    rest = pool.state().available
    last = take_order(pool, gate, Order("all-that-is-left", max(rest, 1)), timeout=WAIT)
    assert isinstance(last, Settled if rest else SoldOut)
    assert gate.totals("mug").sold == stocked
    assert errors == []


# --- rows that appear while somebody waits for the others ---


class Held:
    """A transaction of the test's own, which holds all rows of the sku until it is told to commit."""

    def __init__(self, gate: Gate) -> None:
        self._engine = gate._engine  # noqa: SLF001  # to hold rows as another process would
        self._connection = self._engine.connect()
        self._connection.exec_driver_sql("BEGIN")
        self._connection.exec_driver_sql("SELECT segment FROM segmented_segments ORDER BY segment FOR UPDATE")

    def move_five_to_a_new_row(self) -> None:
        """Insert a row for segment 2 and move quota of segment 0 there."""
        self._connection.exec_driver_sql(
            "INSERT INTO segmented_segments (sku, segment, quota, epoch) VALUES ('mug', 2, 5, 1)"
        )
        self._connection.exec_driver_sql("UPDATE segmented_segments SET quota = quota - 5 WHERE segment = 0")

    def commit_when_waited_for(self) -> None:
        """Commit once another session stands in line."""
        waiting = text(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid <> pg_backend_pid()"
        )
        until = time.monotonic() + WAIT
        with self._engine.connect() as connection:
            while not connection.execute(waiting).scalar_one():
                assert time.monotonic() < until, "nobody waits"
        self._connection.commit()
        self._connection.close()


@pytest.fixture
def gate_of_two(postgres_database: str, open_gate: Callable[..., Gate]) -> Gate:
    gate = open_gate(postgres_database, timeout=WAIT)
    gate.open("mug", [6, 0])
    return gate


WAITERS: Final[dict[str, Callable[[Gate], object]]] = {
    "an order of a full segment": lambda gate: confirm(gate, "a", segment=1, quantity=6),
    "a second resize": lambda gate: gate.stocking.add_segments("mug", 3, epoch=1),
    "the end of a withdrawal": lambda gate: gate.stocking.finish(Change("mug", "out", "withdrawn", 6, 1)),
}


@pytest.mark.parametrize("name", WAITERS)
def test_who_waited_for_the_rows_sees_those_that_came_meanwhile(name: str, gate_of_two: Gate) -> None:
    gate = gate_of_two
    gate.stocking.begin_withdrawal(Change("mug", "out", "withdrawn", 6, 1))
    held = Held(gate)
    held.move_five_to_a_new_row()
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(WAITERS[name], gate)
        held.commit_when_waited_for()
        found = answer.result()
    assert found in (NEW, Stored(replay=True, state="done", epoch=1), Stored(replay=False, state="done", epoch=1))
    assert len(gate.totals("mug").segments) == 3
