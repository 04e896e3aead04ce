"""Batches on Redis are answered as the readable model answers them.

The scripts count and write orders that are alike together. So these batches are larger than those of
`test_stores_agree`, their orders more alike, and nothing lapses, so that no time has to pass between them.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal

from hypothesis import HealthCheck, given, settings, strategies as st

from segmented import protocol as op
from segmented.clock import ManualClock
from segmented.models import Order
from segmented.plans import run_sync
from segmented.stock.audit import audit_plan
from segmented.stores.memory import MemoryStore
from segmented.stores.redis import RedisStore
from tests.real.property.test_stores_agree import outcome

if TYPE_CHECKING:
    from segmented.protocol import Operation

LONG_MS: Final = 600_000
IDS: Final = st.integers(0, 11).map(lambda number: f"o{number}")
CUSTOMERS: Final = st.sampled_from([None, None, None, None, None, "ann"])
ORDERS: Final = st.lists(st.builds(Order, IDS, st.sampled_from([1, 1, 1, 2, 5]), CUSTOMERS), min_size=1, max_size=25)
STATES: Final = st.sampled_from(["confirmed", "cancelled", "expired"])
STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), ORDERS, st.booleans()),
        st.tuples(STATES, st.lists(IDS, min_size=1, max_size=25), st.booleans()),
    ),
    min_size=2,
    max_size=8,
)

_names = count()


def _operation(
    sku: str, kind: Literal["reserve", "confirmed", "cancelled", "expired"], what: list[Any], *, flag: bool
) -> Operation[Any]:
    if kind == "reserve":
        return op.ReserveMany(sku, tuple(what), LONG_MS, partial=flag)
    return op.SettleMany(sku, kind, tuple(what), decided=flag)


def test_batches_of_orders_that_are_alike_are_answered_as_the_model_does(valkey_url: str) -> None:
    @given(
        stock=st.sampled_from([1, 7, 20, 60]),
        segments=st.sampled_from([1, 2, 3, 20]),
        gated=st.booleans(),
        limit=st.sampled_from([None, None, None, 4]),
        steps=STEPS,
    )
    @settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def compare(*, stock: int, segments: int, gated: bool, limit: int | None, steps: list[Any]) -> None:
        sku, memory = f"alike-{next(_names)}", MemoryStore(clock=ManualClock())
        operations: list[Operation[Any]] = [op.OpenPool(sku, stock, segments, gated, limit_per_customer=limit)]
        operations += [_operation(sku, kind, what, flag=flag) for kind, what, flag in steps]
        for operation in (*operations, op.ReadPool(sku), op.ReadLedger(sku, 0, 1_000)):
            assert outcome(store, operation) == outcome(memory, operation), operation
        ids = tuple(f"o{number}" for number in range(12))
        asked = op.ReadOrders(sku, ids)
        assert outcome(store, asked) == outcome(memory, asked)
        assert run_sync(audit_plan(sku), store)[0].is_clean

    with RedisStore.from_url(valkey_url) as store:
        compare()
