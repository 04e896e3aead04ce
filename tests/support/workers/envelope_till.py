"""A pool that orders are submitted to, with its order database if it has one, and the worker's side of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from segmented import protocol as op
from segmented.models import Order
from segmented.models.submitted import BegunOrder, Deciding, Submitted
from segmented.orders import Gate
from segmented.orders.envelopes import EnvelopeReport, WorkTerms, take_envelope
from segmented.plans.drivers import Store
from segmented.stock import Pool
from segmented.stock.outbox import Outbox

SKU = "mug"
BOTH: list[Deciding] = ["at acceptance", "in the worker"]


@dataclass
class EnvelopeSetup:
    """A pool in one mode, with its order database if it has one."""

    pool: Pool
    gate: Gate | None

    def take(
        self,
        order_ids: Sequence[str],
        *,
        step: Callable[[BegunOrder], None] | None = None,
        terms: WorkTerms | None = None,
        pool: Pool | None = None,
    ) -> EnvelopeReport:
        return take_envelope(pool or self.pool, order_ids, gate=self.gate, step=step, terms=terms)

    def submit(self, count: int, quantity: int = 1) -> list[str]:
        self.pool.submit_many(Order(f"o{number:03}", quantity) for number in range(count))
        return [f"o{number:03}" for number in range(count)]

    def found(self, order_id: str) -> Submitted:
        return self.pool.store.execute(op.ReadSubmitted(SKU, (order_id,)))[0]

    def states(self, order_ids: Sequence[str]) -> dict[str, int]:
        """Count orders by state."""
        found = [one.state for one in self.pool.store.execute(op.ReadSubmitted(SKU, tuple(order_ids)))]
        return {state: found.count(state) for state in sorted(set(found))}

    def waiting(self) -> int:
        return self.pool.store.execute(op.ReadOutbox(SKU)).waiting

    def check(self, *, confirmed: int, available: int) -> None:
        """Compare the pool with its ledger and with the database."""
        report = self.pool.audit()
        assert report.is_clean, report.drift
        assert (report.state.confirmed, report.state.reserved, report.state.available) == (confirmed, 0, available)
        if self.gate is not None:
            assert self.gate.confirmed_units(SKU) == self.gate.totals(SKU).sold == confirmed


def opened(
    store: Store, decides: Deciding, gate: Gate | None, *, stock: int = 200, segments: int = 4, hold: float = 600.0
) -> Pool:
    pool = Pool(store, SKU, ttl=min(hold, 10.0), hold=hold, outbox=Outbox(decides=decides))
    pool.open(stock=stock, segments=segments, gated=gate is not None)
    if gate is not None:
        gate.open(SKU, [stock // segments] * segments)
    return pool
