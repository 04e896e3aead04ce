"""Many at once: one winner an order, every unit sold once, and nobody waits for each other in a circle."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from sqlalchemy import text

from segmented.orders import Gate, connect
from segmented.orders.answers import AlreadyConfirmed, Opened, Return, SoldOut, Voided
from segmented.orders.return_rows import NotReturned, ReturnStored
from tests.support.pools.engines import engine_of
from tests.support.pools.gating import NEW, confirm, each_database, watch_errors

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


@each_database
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


@each_database
def test_of_eight_threads_that_return_with_one_id_one_lowers_the_rows(gate: Gate) -> None:
    gate.open("mug", [60, 60])
    for number in range(20):
        confirm(gate, f"o-{number}", quantity=3)
        found = at_once([partial(gate.returns.begin, Return("mug", f"o-{number}", 2, f"r-{number}"))] * THREADS)
        assert found == [ReturnStored(1, "begun", None, 1)] * THREADS
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 20
    assert gate.returns.units("mug") == 40
    assert gate.returns.begin(Return("mug", "o-1", 2, "other")) == NotReturned(1)


@each_database
def test_eight_threads_sell_all_units_from_two_full_segments_without_a_deadlock(gate: Gate) -> None:
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


def test_orders_of_all_sizes_never_deadlock_and_none_that_fits_is_refused(gate: Gate) -> None:
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


def deadlocks(gate: Gate) -> int:
    """Return how many deadlocks the server has broken in this test's database, once all sessions have reported."""
    engine = engine_of(gate)  # to ask the database, which the gate does not show
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


@each_database
def test_tables_are_created_once_however_often_and_by_how_many_at_once(order_database: str) -> None:
    gates = [Gate(connect(order_database, pool_size=1, timeout=TIMEOUT)) for _ in range(6)]
    with ThreadPoolExecutor(len(gates)) as threads:
        list(threads.map(Gate.create, gates * 3))
    assert gates[0].open("mug", [1]) == Opened(stock=1, segment_count=1, epoch=1)
    for gate in gates:
        gate.close()
