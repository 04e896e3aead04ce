"""A worker process of a trial: it asks the outbox for accepted orders, and finishes them in envelopes.

It stands in for a Celery worker: the sweep that publishes orders again is its only source, so there is no broker whose
messages a fault could lose. `segmented torture orders` kills Celery workers.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from bench.proof.durability.buyer import SKU, joined
from bench.proof.processes import AGAIN_SECONDS
from segmented import protocol as op
from segmented.errors import SegmentedError
from segmented.models.submitted import Swept
from segmented.orders import WorkTerms, take_envelope

if TYPE_CHECKING:
    from bench.proof.durability.buyer import Assignment
    from segmented.models.submitted import BegunOrder

TERMS: Final = WorkTerms(ttl=0.5, hold=2.0, work=0.5)
"""A killed worker's orders are another's after half a second."""
STEP_SECONDS: Final = 0.005
"""Duration of the work on an order, so that a kill finds orders that are begun and not finished."""
ENVELOPE_MAX: Final = 4
PUBLISHED_AGAIN_MS: Final = (300, 1_000)
BEGUN_MAX: Final = 5


def be_worker(assignment: Assignment) -> None:
    """Finish orders until killed. Runs in a process of its own."""
    with joined(assignment) as (pool, gate):
        sweep = op.SweepOutbox(SKU, ENVELOPE_MAX, None, *PUBLISHED_AGAIN_MS, hold_ms=TERMS.hold_ms, begun_max=BEGUN_MAX)
        while True:
            due: list[str] = []
            with suppress(SegmentedError):  # the server is away, or the pool is frozen
                swept = pool.store.execute(sweep)
                due = [order_id for order_id, _ in swept.due] if isinstance(swept, Swept) else []
                take_envelope(pool, due, gate=gate, step=_work, terms=TERMS)
            if not due:
                time.sleep(AGAIN_SECONDS / 4)


def _work(_: BegunOrder) -> None:
    time.sleep(STEP_SECONDS)
