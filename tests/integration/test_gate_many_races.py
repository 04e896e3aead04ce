"""Envelopes at once, and across a network: no deadlock, each order once, few round trips, and nothing half stored."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import event, text

from segmented.errors import DatabaseUnavailable
from segmented.models import Order
from segmented.orders import Claim
from segmented.orders.answers import Confirmed, SegmentRow, SoldOut, Voided
from tests.integration.test_gate_postgresql import traced
from tests.integration.test_gate_races import THREADS, at_once, deadlocks
from tests.support.pools.gating import NEW, REPLAY, one_by_one, watch_errors
from tests.support.proxy import PostgresProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

    from segmented.orders import Gate

ROUNDS = 20
SEGMENTS = 6
ALREADY_THERE = ("UniqueViolation", "IntegrityError('UNIQUE")
"""How the two databases say that an order has a row: no trouble, the answer is a replay then."""


@pytest.fixture
def proxy(postgres_database: str) -> Iterator[PostgresProxy]:
    with PostgresProxy(postgres_database) as proxy:
        yield proxy


def claims(ids: range, *, segment_count: int = 4, prefix: str = "o") -> list[Claim]:
    return [Claim(Order(f"{prefix}-{number}", 1), "mug", number % segment_count, 1) for number in ids]


# --- many at once ---


@pytest.mark.parametrize("are_shared", [True, False], ids=["segments shared", "a segment for each thread"])
def test_overlapping_envelopes_of_eight_threads_store_each_order_once_without_a_deadlock(
    gate: Gate, *, are_shared: bool
) -> None:
    """The same orders, in another sequence from each thread; without a shared segment nothing but they take turns.

    The units are as many as the orders need, so that quota moves in the end.
    """
    gate.open("mug", [150] * THREADS)
    errors = watch_errors(gate)

    def send(thread: int, turn: int) -> Counter[object]:
        dice = random.Random(f"{thread} {turn}")
        ids = dice.sample(range(40), 30)
        envelope = [
            Claim(Order(f"o-{turn}-{at}", at % 2 + 1), "mug", dice.randrange(THREADS) if are_shared else thread, 1)
            for at in ids
        ]
        return Counter(one.order.order_id for one, answer in zip(envelope, answers(envelope), strict=True) if answer)

    def answers(envelope: list[Claim]) -> list[bool]:
        found = gate.confirm_many(envelope)
        assert set(found) <= {NEW, REPLAY}
        return [answer == NEW for answer in found]

    for turn in range(ROUNDS):
        counted = at_once([partial(send, thread, turn) for thread in range(THREADS)])
        confirmed = sum((found for found in counted if isinstance(found, Counter)), Counter[object]())
        assert set(confirmed.values()) == {1}
    totals = gate.totals("mug")
    assert totals.sold == gate.confirmed_units("mug") == sum(row.quantity for row in gate.each_order("mug"))
    assert totals.quota == 1_200
    assert [error for error in errors if not error.startswith(ALREADY_THERE)] == []
    assert deadlocks(gate) == 0


def test_envelopes_single_orders_and_voids_share_the_last_units_without_a_deadlock(gate: Gate) -> None:
    """Nearly every envelope has to move quota, and the orders after the last unit are sold out exactly."""
    gate.open("mug", [40] * SEGMENTS)
    errors = watch_errors(gate)

    def run(thread: int) -> Counter[object]:
        dice = random.Random(thread)
        counted = Counter[object]()
        for _ in range(ROUNDS):
            ids = dice.sample(range(400), 20)
            envelope = [Claim(Order(f"o-{at}", at % 3 + 1), "mug", dice.randrange(SEGMENTS), 1) for at in ids]
            match thread % 4:
                case 0 | 1:
                    found = gate.confirm_many(envelope)
                case 2:
                    found = one_by_one(gate, envelope[:5])
                case _:
                    found = []
                    for one in envelope[:2]:
                        gate.void(order_id=one.order.order_id, sku="mug", quantity=one.order.quantity)
            counted += Counter(type(answer) if isinstance(answer, SoldOut) else answer for answer in found)
        return counted

    counted = at_once([partial(run, thread) for thread in range(THREADS)])
    answers = sum((found for found in counted if isinstance(found, Counter)), Counter[object]())
    assert set(answers) == {NEW, REPLAY, Voided(replay=True), SoldOut}
    rows = Counter(row.state for row in gate.each_order("mug"))
    assert rows["confirmed"] == answers[NEW]
    totals = gate.totals("mug")
    assert totals.sold == gate.confirmed_units("mug")
    assert 238 <= totals.sold <= totals.quota == 240  # an order of 3 is refused with 2 left
    assert [error for error in errors if not error.startswith(ALREADY_THERE)] == []
    assert deadlocks(gate) == 0


# --- across a network ---


def test_a_hundred_orders_are_five_round_trips(postgres_database: str, open_gate: Callable[..., Gate]) -> None:
    """BEGIN, the segments' rows, the orders that are there, the write, COMMIT."""
    gate = open_gate(postgres_database, pool_size=1)
    gate.open("mug", [200] * 4)

    def send(number: int) -> object:
        (answer,) = set(gate.confirm_many(claims(range(100), prefix=str(number))))
        return answer

    messages = traced(gate, send, 3)
    assert messages.count("ReadyForQuery") == 3 * 5
    gate.confirm_many(claims(range(100), prefix="prepared"))
    gate.confirm_many(claims(range(100), prefix="also"))
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 500


def test_an_envelope_for_which_quota_moves_is_eleven_round_trips(
    postgres_database: str, open_gate: Callable[..., Gate]
) -> None:
    """Three until it is known, a rollback, one in which the driver forgets what it had prepared, and then six: all rows
    are read twice, see lock_segments.
    """
    gate = open_gate(postgres_database, pool_size=1)
    gate.open("mug", [0, 200, 200, 200])

    def send(_: int) -> object:
        (answer,) = set(gate.confirm_many(claims(range(100))))
        return answer

    assert traced(gate, send, 1).count("ReadyForQuery") == 3 + 1 + 1 + 6
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 100


def test_more_envelopes_than_the_driver_takes_to_prepare_a_statement_are_all_stored(
    postgres_database: str, open_gate: Callable[..., Gate]
) -> None:
    """With and without customers and fences, whose arrays the driver sends as other types."""
    gate = open_gate(postgres_database, pool_size=1)
    gate.open("mug", [900])
    for number in range(16):
        order = Order(f"o-{number}", 1, "ann" if number % 2 else None)
        assert gate.confirm_many([Claim(order, "mug", 0, 1, 2**40 if number > 3 else None)]) == [NEW]
    assert gate.totals("mug").segments == (SegmentRow(0, 900, 16, 2**40, 1),)


def test_a_lost_reply_to_the_commit_is_asked_for_again_and_sells_once(
    proxy: PostgresProxy, open_gate: Callable[..., Gate]
) -> None:
    gate = open_gate(proxy.url)
    gate.open("mug", [60] * 4)
    proxy.swallow_replies(1, to=b"COMMIT")
    assert gate.confirm_many(claims(range(100))) == [REPLAY] * 100
    assert proxy.lost.is_set()
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 100


@pytest.mark.parametrize("statement", ["BEGIN", "FOR UPDATE", "SELECT segmented_orders.order_id", "WITH changed"])
@pytest.mark.parametrize("kills", [1, 2])
def test_a_connection_killed_in_mid_transaction_leaves_nothing_and_the_repeat_stores_it(
    postgres_database: str, open_gate: Callable[..., Gate], statement: str, kills: int
) -> None:
    gate, killer = open_gate(postgres_database), open_gate(postgres_database)
    gate.open("mug", [60] * 4)
    left = [kills]

    @event.listens_for(gate._engine, "after_cursor_execute")  # noqa: SLF001  # to stand between two statements
    def _kill(connection: Connection, _cursor: object, said: str, *_: object) -> None:
        if statement in said and left[0]:
            left[0] -= 1
            link = connection.connection.driver_connection
            assert link is not None
            with killer._engine.connect() as administrator:  # noqa: SLF001  # an administrator's statement
                ended = text("SELECT pg_terminate_backend(:process, 5000)")
                assert administrator.execute(ended, {"process": link.info.backend_pid}).scalar_one()

    if kills == 1:
        assert gate.confirm_many(claims(range(100))) == [NEW] * 100
    else:
        with pytest.raises(DatabaseUnavailable, match="did not answer"):
            gate.confirm_many(claims(range(100)))
        assert (gate.totals("mug").sold, gate.confirmed_units("mug")) == (0, 0)
        assert gate.confirm_many(claims(range(100))) == [Confirmed(replay=False)] * 100
    assert left == [0]
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 100
