"""Rows of segments that appear while somebody waits for the others: whoever waited sees them."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest
from sqlalchemy import text

from segmented.orders import Gate
from segmented.orders.answers import Stored
from segmented.orders.stocking import Change
from tests.support.pools.engines import engine_of
from tests.support.pools.gating import NEW, confirm

WAIT: Final = 120.0


class Held:
    """A transaction of the test's own, which holds all rows of the sku until it is told to commit."""

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
    gate.stocking.begin_withdrawal(Change("mug", "out", "withdrawn", 6, 1))
    held = Held(gate)
    held.move_five_to_a_new_row()
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(WAITERS[name], gate)
        held.commit_when_waited_for()
        found = answer.result()
    assert found in (NEW, Stored(replay=True, state="done", epoch=1), Stored(replay=False, state="done", epoch=1))
    assert len(gate.totals("mug").segments) == 3
