"""Many at once: one winner an order, every unit sold once, and nobody waits for each other in a circle."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from segmented.orders.answers import AlreadyConfirmed, SoldOut, Voided
from tests.support.pools.gating import NEW, REPLAY, claim, confirm, watch_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.orders import Gate

THREADS = 8
TIMEOUT = 120.0


@pytest.fixture
def gate(order_database: str, open_gate: Callable[..., Gate]) -> Gate:
    """A gate whose transactions wait for each other even while the process that runs them all stands still."""
    return open_gate(order_database, timeout=TIMEOUT)


def at_once(work: Sequence[Callable[[], object]]) -> list[object]:
    """Do each in a thread of its own, all released together, and return what they returned."""
    barrier = threading.Barrier(len(work))

    def start(one: Callable[[], object]) -> object:
        barrier.wait()
        return one()

    with ThreadPoolExecutor(len(work)) as threads:
        return list(threads.map(start, work))


def test_however_close_confirm_and_void_race_one_of_them_wins(gate: Gate) -> None:
    gate.open("mug", [60, 60])
    outcomes: Counter[tuple[object, ...]] = Counter()
    for number in range(60):
        void = partial(gate.void, order_id=f"o-{number}", sku="mug", quantity=1)
        outcomes[tuple(at_once([partial(confirm, gate, f"o-{number}"), void]))] += 1
    won, lost = outcomes[NEW, AlreadyConfirmed()], outcomes[Voided(replay=True), Voided(replay=False)]
    assert won + lost == 60
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == won
    assert Counter(row.state for row in gate.each_order("mug")) == +Counter(confirmed=won, void=lost)


def test_one_order_confirmed_eight_times_at_once_sells_once(gate: Gate) -> None:
    gate.open("mug", [10] * THREADS)
    for number in range(10):
        answers = at_once([partial(confirm, gate, f"o-{number}", segment=at) for at in range(THREADS)])
        assert Counter(answers) == {NEW: 1, REPLAY: THREADS - 1}
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 10


def test_all_of_200_units_are_sold_from_two_full_segments_by_eight_threads_without_a_deadlock(gate: Gate) -> None:
    """320 orders for 200 units, nearly all of them in other segments than the two that are asked."""
    gate.open("mug", [10] * 20)
    errors = watch_errors(gate)

    def sell(thread: int) -> Counter[object]:
        return Counter(confirm(gate, f"o-{thread}-{number}", segment=(thread % 2) * 19) for number in range(40))

    answers = at_once([partial(sell, thread) for thread in range(THREADS)])
    counted = sum((answer for answer in answers if isinstance(answer, Counter)), Counter[object]())
    assert counted == {NEW: 200, SoldOut(total=200, sold=200): 120}
    totals = gate.totals("mug")
    assert (totals.quota, totals.sold, gate.confirmed_units("mug")) == (200, 200, 200)
    assert errors == []
    assert deadlocks(gate) == 0


def test_orders_of_all_sizes_never_deadlock_and_none_is_refused_that_would_still_fit_at_the_end(gate: Gate) -> None:
    """Units left only become fewer, so an order that fits at the end fitted when it was refused."""
    gate.open("mug", [12] * 10)
    errors = watch_errors(gate)

    def refused(thread: int) -> list[int]:
        dice = random.Random(thread)
        orders = [(f"o-{thread}-{number}", dice.randint(2, 7), dice.randrange(10)) for number in range(20)]
        answers = [(confirm(gate, order, segment=at, quantity=units), units) for order, units, at in orders]
        return [units for answer, units in answers if answer != NEW]

    sizes = at_once([partial(refused, thread) for thread in range(THREADS)])
    left = 120 - gate.totals("mug").sold
    assert [size for found in sizes if isinstance(found, list) for size in found if size <= left] == []
    assert confirm(gate, "all-that-is-left", quantity=left or 1) == (NEW if left else SoldOut(total=120, sold=120))
    totals = gate.totals("mug")
    assert (totals.quota, totals.sold, gate.confirmed_units("mug")) == (120, 120, 120)
    assert errors == []
    assert deadlocks(gate) == 0


def test_transactions_with_a_body_and_without_sell_the_tail_together(gate: Gate) -> None:
    gate.open("mug", [4] * 5)

    def with_body(thread: int) -> int:
        for number in range(2):
            with gate.transaction(**(claim(f"o-{thread}-{number}") | {"segment": thread % 5})) as connection:
                connection.execute(text("SELECT 1"))
        return 2

    def without(thread: int) -> int:
        return [confirm(gate, f"o-{thread}-{number}", segment=0) for number in range(3)].count(NEW)

    work = [*(partial(with_body, at) for at in range(4)), *(partial(without, at) for at in range(4, THREADS))]
    assert at_once(work) == [2, 2, 2, 2, 3, 3, 3, 3]
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 20
    assert deadlocks(gate) == 0


def deadlocks(gate: Gate) -> int:
    """Return how many deadlocks the server has broken in this test's database, once all sessions have reported."""
    engine = gate._engine  # noqa: SLF001  # to ask the database, which the gate does not show
    if engine.dialect.name != "postgresql":
        return 0
    engine.dispose()
    with engine.connect() as connection:
        others = text(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        while connection.execute(others).scalar_one():  # a session reports what it counted when it ends
            connection.execute(text("SELECT pg_sleep(0.01)"))
        found = connection.execute(text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"))
        return int(found.scalar_one())
