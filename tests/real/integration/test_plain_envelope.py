"""PostgreSQL's one statement for a plain envelope: it stores all of it or nothing, and the rules decide the rest."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import DataError, IntegrityError

from segmented.models import Order
from segmented.orders import Claim, Gate
from segmented.orders.answers import SegmentRow, SoldOut
from segmented.orders.postgresql import confirm_plain
from tests.real.integration.test_gate_races import THREADS, at_once, deadlocks
from tests.support.contract.parking import wait_until
from tests.support.pools.engines import engine_of
from tests.support.pools.gating import NEW, confirm, stored, watch_errors

ROUNDS = 20
PATIENCE = 60.0
"""Seconds for which a transaction waits for another one, on a machine that stands still now and then."""
WAITING = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")


@pytest.fixture
def gate(postgres_database: str, open_gate: Callable[..., Gate]) -> Gate:
    return open_gate(postgres_database, timeout=PATIENCE)


def claimed(order_id: str, segment: int = 0, quantity: int = 1, *, fence: int | None = 5, epoch: int = 1) -> Claim:
    return Claim(Order(order_id, quantity, f"by {order_id}"), "mug", segment, epoch, fence, sequence=7)


def at_once_or_not(gate: Gate, claims: list[Claim]) -> object:
    """Run the one statement alone, and return its answers, or the kind of its error."""
    with engine_of(gate).connect() as connection:  # the statement without what follows it
        try:
            return confirm_plain(connection, claims)
        except (IntegrityError, DataError) as error:
            return type(error)


def statements(gate: Gate) -> list[str]:
    """Return a list that the first word of every statement is added to."""
    said: list[str] = []

    @event.listens_for(engine_of(gate), "before_cursor_execute")  # to listen to what it says
    def _note(*heard: object) -> None:
        said.append(str(heard[2]).split()[0])

    return said


# --- a plain envelope ---


def test_a_plain_envelope_is_one_statement_and_its_rows_are_those_of_its_orders(gate: Gate) -> None:
    gate.open("mug", [9, 9, 9])
    said = statements(gate)
    claims = [claimed("c", 2, 3), claimed("a", 0, fence=None), claimed("b", 2), claimed('"\\,{NULL} é', 2)]
    answers = gate.confirm_many(claims)
    assert answers == [NEW] * 4
    assert said == ["WITH"]
    totals, rows = stored(gate, "mug")
    assert totals.segments == (SegmentRow(0, 9, 1, 0, 1, 7), SegmentRow(1, 9, 0, 0, 1, 0), SegmentRow(2, 9, 5, 5, 1, 7))
    assert [row[:7] for row in rows] == [
        ('"\\,{NULL} é', "confirmed", 1, 2, 5, 1, 'by "\\,{NULL} é'),
        ("a", "confirmed", 1, 0, None, 1, "by a"),
        ("b", "confirmed", 1, 2, 5, 1, "by b"),
        ("c", "confirmed", 3, 2, 5, 1, "by c"),
    ]


# --- anything else changes nothing ---

ODD: dict[str, tuple[list[Claim], object]] = {
    "an id twice": ([claimed("a"), claimed("a")], None),
    "two fences in a segment": ([claimed("a", fence=5), claimed("b", fence=6)], None),
    "an order of a segment without a fence": ([claimed("a", fence=5), claimed("b", fence=None)], None),
    "two epochs in a segment": ([claimed("a"), claimed("b", epoch=2)], None),
    "another epoch": ([claimed("a", 0), claimed("b", 1, epoch=2)], None),
    "a stale fence": ([claimed("a", 0), claimed("b", 1, fence=3)], None),
    "no such segment": ([claimed("a", 0), claimed("b", 7)], None),
    "too few units": ([claimed("a", 0), claimed("b", 1, 5), claimed("c", 1, 4)], None),
    "an order that is there": ([claimed("a", 0), claimed("there", 0)], IntegrityError),
    "an order that is void": ([claimed("a", 0), claimed("void", 0)], IntegrityError),
    "a fence that is too large": ([claimed("a", 0), claimed("b", 1, fence=2**63)], DataError),
    "a segment that is too large": ([claimed("a", 0), claimed("b", 2**31)], DataError),
}


@pytest.mark.parametrize("odd", ODD)
def test_an_envelope_that_is_not_plain_changes_nothing_and_is_answered_by_the_rules(gate: Gate, odd: str) -> None:
    gate.open("mug", [9, 9])
    confirm(gate, "there", segment=1, fence=4)
    gate.void(order_id="void", sku="mug", quantity=1)
    before = stored(gate, "mug")
    claims, answer = ODD[odd]
    assert at_once_or_not(gate, claims) == answer
    assert stored(gate, "mug") == before
    answers = gate.confirm_many(claims)
    assert answers[0] == NEW
    assert len(answers) == len(claims)
    assert gate.totals("mug").sold == gate.confirmed_units("mug")


@pytest.mark.parametrize(
    ("table", "when"),
    [("segmented_orders", "INSERT"), ("segmented_segments", "UPDATE")],
    ids=["an order's row is not written", "a segment's row is not written"],
)
def test_a_row_that_somebody_elses_trigger_keeps_back_undoes_the_statement(gate: Gate, table: str, when: str) -> None:
    """Units without their order, or orders without their units, would be an oversale or a loss."""
    gate.open("mug", [9, 9])
    keeps = "order_id = 'b'" if when == "INSERT" else "segment = 1"
    with engine_of(gate).connect() as connection:  # an administrator's statements
        connection.execute(
            text("CREATE FUNCTION drop_row() RETURNS trigger AS 'BEGIN RETURN NULL; END' LANGUAGE plpgsql")
        )
        connection.execute(
            text(
                f"CREATE TRIGGER dropping BEFORE {when} ON {table} FOR EACH ROW WHEN (NEW.{keeps}) "
                "EXECUTE FUNCTION drop_row()"
            )
        )
    assert at_once_or_not(gate, [claimed("a", 0), claimed("b", 1)]) is DataError
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 0
    assert at_once_or_not(gate, [claimed("a", 0)]) == [NEW]


# --- many at once ---


def test_envelopes_of_8_threads_over_the_same_segments_sell_each_unit_once(gate: Gate) -> None:
    """Each envelope names its segments in another sequence. There are 60 units fewer than ordered."""
    segment_count = 6
    ordered = THREADS * ROUNDS * 12 * 2
    gate.open("mug", [(ordered - 60) // segment_count] * segment_count)
    errors, said = watch_errors(gate), statements(gate)

    def send(thread: int) -> Counter[object]:
        dice = random.Random(thread)
        counted = Counter[object]()
        for turn in range(ROUNDS):
            claims = [
                Claim(Order(f"o-{thread}-{turn}-{at}", 2), "mug", at % segment_count, 1, None, None, turn)
                for at in dice.sample(range(12), 12)
            ]
            counted += Counter(
                type(answer) if isinstance(answer, SoldOut) else answer for answer in gate.confirm_many(claims)
            )
        return counted

    found = at_once([partial(send, thread) for thread in range(THREADS)])
    answers = sum((counted for counted in found if isinstance(counted, Counter)), Counter[object]())
    assert answers == {NEW: (ordered - 60) // 2, SoldOut: 30}
    totals = gate.totals("mug")
    assert totals.sold == gate.confirmed_units("mug") == totals.quota == ordered - 60
    assert errors == []
    assert deadlocks(gate) == 0
    assert said.count("WITH") > said.count("BEGIN") > 0


@pytest.mark.parametrize(
    ("units", "said"), [(15, ["WITH"]), (16, ["WITH", "BEGIN", "BEGIN", "WITH"])], ids=["fits now", "too many"]
)
def test_an_envelope_that_waits_for_a_row_uses_what_the_row_has_by_then(
    gate: Gate, units: int, said: list[str]
) -> None:
    """Another transaction sells 5 of 10 units and brings 10 more, after the envelope's snapshot."""
    gate.open("mug", [10, 10])
    heard, errors = statements(gate), watch_errors(gate)
    engine = engine_of(gate)  # for somebody else's transaction
    with engine.connect() as theirs, engine.connect() as watcher:
        theirs.exec_driver_sql("BEGIN")
        theirs.exec_driver_sql("UPDATE segmented_segments SET sold = 5, quota = 20 WHERE segment = 0")
        heard.clear()
        answers: list[object] = []
        claims = [claimed("a", 0, units - 1), claimed("b", 0)]
        thread = threading.Thread(target=lambda: answers.extend(gate.confirm_many(claims)))
        thread.start()
        wait_until(lambda: bool(watcher.execute(WAITING).scalar_one()))
        theirs.exec_driver_sql("COMMIT")
        thread.join(PATIENCE)
    assert [one for one in heard if one in {"WITH", "BEGIN"}] == said  # SELECT is the watcher's
    assert (answers, errors) == ([NEW, NEW], [])
    rows = gate.totals("mug").segments
    assert sum(row.sold for row in rows) == 5 + units
    assert all(row.sold <= row.quota for row in rows)


def test_a_deadlock_with_another_transaction_falls_back_and_stores_the_envelope(gate: Gate) -> None:
    """Their transaction locks the rows the other way round, and the server ends the envelope's statement."""
    gate.open("mug", [9, 9])
    said, errors = statements(gate), watch_errors(gate)
    lock = text("SELECT 1 FROM segmented_segments WHERE segment = :segment FOR UPDATE")
    engine = engine_of(gate)  # for somebody else's transaction
    with engine.connect() as theirs, engine.connect() as watcher:
        theirs.exec_driver_sql("BEGIN")
        theirs.exec_driver_sql("SET LOCAL deadlock_timeout = '60s'")  # so that the envelope is the one that notices
        theirs.execute(lock, {"segment": 1})
        answers: list[object] = []
        thread = threading.Thread(target=lambda: answers.extend(gate.confirm_many([claimed("a", 0), claimed("b", 1)])))
        thread.start()
        wait_until(lambda: bool(watcher.execute(WAITING).scalar_one()))
        theirs.execute(lock, {"segment": 0})
        theirs.exec_driver_sql("COMMIT")
        thread.join(PATIENCE)
    assert answers == [NEW, NEW]
    # The envelope may lock row 0 again before theirs wakes, and meet the same deadlock in the statements that follow.
    assert errors
    assert all("DeadlockDetected" in error for error in errors)
    assert said.count("BEGIN") == 1 + (len(errors) + 1) // 2  # theirs; one statement, statements, one statement ...
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 2
