"""A pool in shards that orders are submitted to, and what its workers are told."""

import json
from collections.abc import Sequence
from inspect import iscoroutine
from typing import Any, Final

import pytest

from segmented import protocol as op
from segmented.celery.messages import Envelope, read_envelope
from segmented.models import checked_pool_name
from segmented.models.submitted import Submitted
from segmented.orders import WorkTerms, take_envelope
from segmented.orders.envelope_report import EnvelopeReport
from segmented.stock import Outbox, ShardedPool, pool_of
from segmented.stock.outbox import SweepTerms, sweep
from tests.fixtures.stores import MEMORY, REDIS, AsyncSide, Side
from tests.support.contract.shards.sharding import sharded, shards_of

SHARDS: Final = 3
STOCK: Final = 11
AFTER: Final = 0.02
worked = pytest.mark.parametrize("side", [MEMORY[0], REDIS[0]], indirect=True, ids=str)
"""Workers are threads."""


class RecordingPublisher:
    """A publisher whose messages go over a wire, which a test reads."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def put(self, sku: str, order_ids: Sequence[str], segment: int | None = None) -> None:  # noqa: ARG002  # of the protocol
        self.lines.append(json.dumps(Envelope(sku, tuple(order_ids)).body()))

    def send(self, sku: str, order_ids: Sequence[str]) -> None:
        self.put(sku, order_ids)

    def room(self) -> int | None:
        return None

    def messages(self) -> list[tuple[str, list[str]]]:
        """Take what came, as a worker reads it."""
        lines, self.lines = self.lines, []
        found = [read_envelope((json.loads(line),), {}) for line in lines]
        return [(one.sku, list(one.order_ids)) for one in found]


class Shop:
    """A pool in three shards of four, four and three units, orders for which are submitted."""

    def __init__(self, side: Side, *, mark: float = 0.0, limit: int | None = None) -> None:
        self.side, self.publisher, self.sku = side, RecordingPublisher(), side.name()
        self.pool = self.process(mark=mark)
        self.pool.open(stock=STOCK, segments=7, shards=SHARDS, limit_per_customer=limit)
        self.shards = shards_of(side, self.sku)

    def process(self, *, mark: float = 0.0) -> ShardedPool:
        """Return what another process has of the pool."""
        return sharded(self.side, self.sku, mark=mark, outbox=Outbox(self.publisher, publish_after=AFTER))

    def submitted(self, order_id: str, number: int) -> Submitted:
        return self.side.execute(op.ReadSubmitted(self.shards[number], (order_id,)))[0]

    def waiting(self) -> list[int]:
        """Count what waits in each shard's outbox."""
        return [self.side.execute(op.ReadOutbox(shard)).waiting for shard in self.shards]

    def refreshed(self, handle: Any) -> str:  # noqa: ANN401  # of either colour
        answer = handle.refresh()
        return str(self.side.wait(answer) if iscoroutine(answer) and isinstance(self.side, AsyncSide) else answer)

    def take(self, *, step: Any = None, terms: WorkTerms | None = None) -> list[EnvelopeReport]:  # noqa: ANN401  # a callable
        """Be the worker who gets all messages."""
        return [
            take_envelope(pool_of(self.side.store, sku), ids, step=step, terms=terms)
            for sku, ids in self.publisher.messages()
        ]

    def sweep(self) -> int:
        """Be the sweep, which knows the list of outboxes only; returns how many orders it published."""
        names = [name for name in self.side.execute(op.ListOutboxes()) if name.startswith(f"{self.sku}\x1f")]
        assert len(names) == SHARDS
        reports = [
            sweep(self.side.execute, checked_pool_name("".join(name)), self.publisher, terms=SweepTerms(base=60))
            for name in names
        ]
        return sum(report.published for report in reports)
