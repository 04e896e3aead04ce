"""Many at once: one winner an order, every unit sold once, and nobody waits for each other in a circle."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import pytest
from sqlalchemy import Connection, event, text

from segmented.errors import DatabaseUnavailable
from segmented.models import Order
from segmented.orders import Claim, Gate, connect
from segmented.orders.answers import AlreadyConfirmed, Opened, Return, SoldOut, Stored, Voided
from segmented.orders.confirming import TRIES_MAX
from segmented.orders.return_rows import NotReturned, ReturnStored
from segmented.orders.stocking import Change
from tests.real.integration.test_gate_postgresql import traced
from tests.support.pools.engines import engine_of
from tests.support.pools.gating import NEW, REPLAY, confirm, each_database, hundred, watch_errors
from tests.support.proxy import PostgresProxy

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


# Envelopes at once, and across a network: no deadlock, each order once, few round trips, and nothing half stored.


@pytest.fixture
def proxy(postgres_database: str) -> Iterator[PostgresProxy]:
    with PostgresProxy(postgres_database) as proxy:
        yield proxy


def claims(ids: range, *, segment_count: int = 4, prefix: str = "o") -> list[Claim]:
    return [Claim(Order(f"{prefix}-{number}", 1), "mug", number % segment_count, 1) for number in ids]


# --- many at once ---
# --- across a network ---
def test_a_hundred_orders_are_one_round_trip(postgres_database: str, open_gate: Callable[..., Gate]) -> None:
    """The commit is part of it."""
    gate = open_gate(postgres_database, pool_size=1)
    gate.open("mug", [300] * 4)

    def send(number: int) -> object:
        (answer,) = set(gate.confirm_many(claims(range(100), prefix=str(number))))
        return answer

    messages = traced(gate, send, 10)
    assert messages.count("Sync") == messages.count("ReadyForQuery") == 10 + 1  # one to have it prepared
    assert messages.count("Query") == 0  # as BEGIN, COMMIT and ROLLBACK would be sent
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 1_000


def test_an_envelope_with_a_repeat_is_five_round_trips_more(
    postgres_database: str, open_gate: Callable[..., Gate]
) -> None:
    """BEGIN, the segments' rows, the orders that are there, the write, COMMIT; the gate itself sees an id twice."""
    gate = open_gate(postgres_database, pool_size=1)
    gate.open("mug", [200] * 4)

    gate.confirm_many(claims(range(100)))
    more = claims(range(101))
    assert traced(gate, lambda _: gate.confirm_many(more)[100], 1).count("ReadyForQuery") == 1 + 5
    twice = claims(range(200, 300)) + claims(range(200, 201))
    assert traced(gate, lambda _: gate.confirm_many(twice)[0], 1).count("ReadyForQuery") == 5
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 201


@pytest.mark.parametrize(
    ("statement", "kills"),
    [
        ("BEGIN", 1),
        ("FOR UPDATE", 1),
        ("SELECT segmented_orders.order_id", 1),
        ("WITH changed", 1),
        ("WITH changed", 2),
    ],
)
def test_a_connection_killed_in_mid_transaction_leaves_nothing(
    postgres_database: str, open_gate: Callable[..., Gate], statement: str, kills: int
) -> None:
    """An id that comes twice needs the transaction."""
    gate, killer = open_gate(postgres_database), open_gate(postgres_database)
    gate.open("mug", [60] * 4)
    envelope, answers = claims(range(100)) + claims(range(1)), [NEW] * 100 + [REPLAY]
    left = [kills]

    @event.listens_for(engine_of(gate), "after_cursor_execute")  # to stand between two statements
    def _kill(connection: Connection, _cursor: object, said: str, *_: object) -> None:
        if statement in said and left[0]:
            left[0] -= 1
            link = connection.connection.driver_connection
            assert link is not None
            with engine_of(killer).connect() as administrator:  # an administrator's statement
                ended = text("SELECT pg_terminate_backend(:process, 60000)")
                assert administrator.execute(ended, {"process": link.info.backend_pid}).scalar_one()

    if kills == 1:
        assert gate.confirm_many(envelope) == answers
    else:
        with pytest.raises(DatabaseUnavailable, match="did not answer"):
            gate.confirm_many(envelope)
        assert (gate.totals("mug").sold, gate.confirmed_units("mug")) == (0, 0)
        assert gate.confirm_many(envelope) == answers
    assert left == [0]
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 100


def after_the_reading(gate: Gate, work: Callable[[], object], *, times: int) -> None:
    """Do something between the reading of the orders and their insert, at the first `times` envelopes."""
    left = [times]

    @event.listens_for(engine_of(gate), "after_cursor_execute")  # to stand between two statements
    def _between(*heard: object) -> None:
        is_reading = "SELECT segmented_orders.order_id" in str(heard[2])
        if is_reading and left[0]:
            left[0] -= 1
            work()


def test_orders_that_are_decided_meanwhile_are_confirmed_one_by_one(
    postgres_database: str, open_gate: Callable[..., Gate]
) -> None:
    gate, other = open_gate(postgres_database), open_gate(postgres_database)
    gate.open("mug", [60] * 4)
    ids = iter(range(0, 100, 10))

    def void() -> None:
        number = next(ids)
        other.void(order_id=f"o-{number}", sku="mug", quantity=number % 3 + 1)

    after_the_reading(gate, void, times=TRIES_MAX)
    answers = gate.confirm_many(hundred())
    assert [number for number, answer in enumerate(answers) if answer != NEW] == [0, 10, 20]
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 199 - 1 - 2 - 3


# Rows of segments that appear while a transaction waits for the others: it sees them afterwards.


WAIT: Final = 120.0


class Held:
    """A transaction of the test's own, which holds all rows of the sku until the test commits it."""

    def __init__(self, gate: Gate) -> None:
        self._engine = engine_of(gate)  # to hold rows as another process would
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
    gate.stocking.begin(Change("mug", "out", "withdrawn", 6, 1), 1)
    held = Held(gate)
    held.move_five_to_a_new_row()
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(WAITERS[name], gate)
        held.commit_when_waited_for()
        found = answer.result()
    assert found in (NEW, Stored(replay=True, state="done", epoch=1), Stored(replay=False, state="done", epoch=1))
    assert len(gate.totals("mug").segments) == 3
