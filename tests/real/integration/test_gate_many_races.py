"""Envelopes at once, and across a network: no deadlock, each order once, few round trips, and nothing half stored."""

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Connection, event, text

from segmented.errors import DatabaseUnavailable
from segmented.models import Order
from segmented.orders import Claim, Gate
from segmented.orders.confirming import TRIES_MAX
from tests.real.integration.test_gate_postgresql import traced
from tests.support.pools.engines import engine_of
from tests.support.pools.gating import NEW, REPLAY, hundred
from tests.support.proxy import PostgresProxy

TIMEOUT = 120.0


@pytest.fixture
def proxy(postgres_database: str) -> Iterator[PostgresProxy]:
    with PostgresProxy(postgres_database) as proxy:
        yield proxy


@pytest.fixture
def gate(order_database: str, open_gate: Callable[..., Gate]) -> Gate:
    """A gate whose transactions wait for each other even while the process that runs them all stands still."""
    return open_gate(order_database, timeout=TIMEOUT)


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
