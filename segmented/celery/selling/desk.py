"""Submits the orders of a sale to the outbox of their pool, and sweeps it: lost messages are published again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.celery.selling.book import Outcome
from segmented.celery.sweeping import sweep_pool
from segmented.errors import SegmentedError
from segmented.models import Assignment, Decided, OrderState, Settled
from segmented.plans import run_sync
from segmented.stock import Outbox, Pool
from segmented.stock.outbox import dead_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from segmented.celery.selling.book import Book
    from segmented.celery.selling.orders_file import FileOrder
    from segmented.celery.selling.publisher import Publisher
    from segmented.celery.settings import WorkerSettings
    from segmented.orders import Gate
    from segmented.stores.redis import RedisStore

DECIDED: Final[Mapping[str, OrderState]] = {
    "confirmed": "confirmed",
    "cancelled": "cancelled",
    "expired": "expired",
    "refused": "refused",
}
"""Ledger entry -> the final state. Other entries, such as `reserved`, leave the order undecided."""


class Desk:
    """Accepts the orders of all pools, and hands them to the workers."""

    def __init__(self, store: RedisStore, gate: Gate, publisher: Publisher, settings: WorkerSettings) -> None:
        """Create a desk; `settings` are those of the workers."""
        self._store = store
        self._gate = gate
        self._publisher = publisher
        self._outbox = Outbox.under_lock(publish_after=settings.publish_after)
        self._settings = settings
        self._pools: dict[str, Pool] = {}
        self._failure = ""
        self._closed: set[str] = set()
        self._dead: dict[str, int] = {}

    @property
    def reasons(self) -> list[str]:
        """Why orders may stay undecided, one sentence each."""
        dead = [
            f"orders of {sku!r} in the dead-letter set: {count:,}; 'segmented orders dead {sku}' lists them with their "
            f"reasons, and 'segmented orders replay {sku}' lets workers try again"
            for sku, count in self._dead.items()
            if count
        ]
        closed = [f"pool {sku!r} is closed: it takes no new orders" for sku in sorted(self._closed)]
        return [*dead, *closed, *([f"the last sweep ended early: {self._failure}"] if self._failure else [])]

    def pool(self, sku: str) -> Pool:
        """Return the pool with its gate."""
        if sku not in self._pools:
            self._pools[sku] = Pool(self._store, sku, gate=self._gate, outbox=self._outbox)
        return self._pools[sku]

    def submit(self, sku: str, lines: Iterable[FileOrder], book: Book) -> None:
        """Accept orders and publish them; those of an interrupted run are published again. Raises their failure."""
        accepted = []
        for handle in self.pool(sku).submit_many([line.order for line in lines]):
            if isinstance(handle, SegmentedError):
                raise handle
            order_id, outcome = handle.order_id, handle.outcome
            if outcome is None:
                accepted.append(order_id)
            elif isinstance(outcome, Settled | Decided):  # another program's, and not in the ledger any more
                number = (outcome.segment, outcome.fencing_token, outcome.sequence)
                book.decide([((sku, order_id), Outcome(outcome.state, *number))])
            else:
                self._closed.add(sku)
                book.give_up(sku, (order_id,))
        self._publisher.send(sku, accepted)

    def sweep(self, sku: str, book: Book) -> None:
        """Publish orders again that are due, and give up those that killed their workers too often."""
        own = Assignment(self._settings.queue, self._settings.step)
        report = sweep_pool(self.pool(sku).plain, self._gate, self._publisher, self._settings, assignment=own)
        book.published_again += report.published
        self._failure = report.failure
        dead = [one.order_id for one in run_sync(dead_plan(sku), self._store)]
        self._dead[sku] = len(dead)
        book.give_up(sku, dead)
