"""One sweep of a pool's outbox, with the settings of the workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.orders.verifying import when_verified
from segmented.stock.outbox import Sender, SweepReport, SweepTerms, sweep

if TYPE_CHECKING:
    from segmented.celery.settings import WorkerSettings
    from segmented.models import Assignment
    from segmented.models.submitted import SweepSuperseded, Swept
    from segmented.orders import Gate
    from segmented.protocol import SweepOutbox
    from segmented.stock import Pool

RETRY_MOST: Final = 12
"""The time until an order is published again doubles, up to this many times the first."""


def sweep_pool(
    pool: Pool,
    gate: Gate,
    sender: Sender,
    settings: WorkerSettings,
    *,
    assignment: Assignment,
    fencing_token: int | None = None,
) -> SweepReport:
    """Publish a pool's due orders again; a gated pool is first compared with its order database.

    Raises AssignedElsewhere for a pool that leaves its orders to workers of another `assignment`, before anything else,
    and what `when_verified` raises: PoolFrozen, PoolUnverified, DatabaseUnavailable, StoreUnavailable.
    """
    pool.store.execute(op.CheckAssignment(pool.sku, assignment))

    def execute(operation: SweepOutbox) -> Swept | SweepSuperseded:
        return when_verified(pool, gate, lambda: pool.store.execute(operation))

    terms = SweepTerms(
        base=settings.publish_after,
        most=RETRY_MOST * settings.publish_after,
        hold=settings.hold,
        begun_max=settings.attempts_max,
        assignment=assignment,
    )
    return sweep(execute, pool.sku, sender, terms=terms, fencing_token=fencing_token)
