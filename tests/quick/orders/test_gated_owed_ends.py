"""A signal at any statement or store call of a gated grant's end: the order ends as its body did, on both sides."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pytest
from sqlalchemy import event

from segmented import MemoryStore, Pool
from segmented.orders import Gate, connect
from segmented.stock import Grant
from tests.quick.contract.pools.test_owed_ends import STATES, SYNC, CutStore
from tests.support.pools.gated_shop import check

if TYPE_CHECKING:
    from sqlalchemy import Engine

STEPS_MAX: Final = 40


class Statements:
    """Counts an engine's statements, and raises before or after one of them; 0: at none."""

    def __init__(self, engine: Engine, *, is_performed: bool) -> None:
        self.at = self.count = 0
        event.listen(engine, "after_cursor_execute" if is_performed else "before_cursor_execute", self._count)

    def _count(self, *_: Any) -> None:  # noqa: ANN401  # every event has other arguments
        self.count += 1
        if self.count == self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("end", STATES)
@pytest.mark.parametrize("is_performed", [False, True], ids=["unsent", "unanswered"])
@pytest.mark.parametrize("of_database", [False, True], ids=["store", "database"])
def test_a_signal_at_any_step_of_a_gated_end_leaves_the_order_ended(
    order_database: str, end: str, *, is_performed: bool, of_database: bool
) -> None:
    engine = connect(order_database)
    statements = Statements(engine, is_performed=is_performed)
    with Gate(engine) as gate:
        for at in range(1, STEPS_MAX):
            store = CutStore(MemoryStore(), KeyboardInterrupt, is_performed=is_performed)
            pool = Pool(store, f"mug-{at}", ttl=30, hold=60, gate=gate)
            pool.open(stock=5, segments=1)
            grant = pool.grant("a", timeout=0).__enter__()
            assert isinstance(grant, Grant)
            statements.count = store.calls = 0
            statements.at, store.at = (at, 0) if of_database else (0, at)
            with suppress(KeyboardInterrupt):
                SYNC[end](grant)
            is_over = (statements.count if of_database else store.calls) < at
            statements.at = store.at = 0
            record = pool.order("a")
            assert record is not None
            assert (at, record.state) == (at, STATES[end])
            is_sold = STATES[end] == "confirmed"
            check(pool, gate, confirmed=int(is_sold), available=5 - is_sold)
            if is_over:
                return
    pytest.fail(f"an end takes {STEPS_MAX} steps")
