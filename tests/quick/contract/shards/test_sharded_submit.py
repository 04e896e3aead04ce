"""Submitting to a pool in shards: units, record and outbox in one step at the home, and workers shard by shard."""

import json
from collections.abc import Iterator, Sequence
from inspect import iscoroutine
from typing import Any, Final

import pytest

from segmented import protocol as op
from segmented.celery.messages import Envelope, read_envelope
from segmented.errors import InvalidInput, SegmentedError
from segmented.keys import OUTBOXES
from segmented.models import Order, checked_pool_name
from segmented.models.submitted import Submitted
from segmented.orders import WorkTerms, take_envelope
from segmented.orders.envelopes import EnvelopeReport
from segmented.stock import AsyncShardedPool, Outbox, ShardedPool, pool_of
from segmented.stock.outbox import SweepTerms, sweep
from segmented.stores.memory import AsyncMemoryStore
from tests.fixtures.stores import MEMORY, REDIS, AsyncSide, Side
from tests.support.contract.shards.sharding import at_home_in, check_all, sharded, shards_of

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


@pytest.fixture
def shop(side: Side) -> Iterator[Shop]:
    made = Shop(side)
    yield made
    check_all(made.pool)


# --- accepting ---


def test_orders_are_in_the_outbox_of_their_home_and_a_message_has_those_of_one_shard(shop: Shop) -> None:
    ids = [at_home_in(number, SHARDS)[index] for index in range(2) for number in range(SHARDS)]
    handles = shop.pool.submit_many(Order(order_id, 1) for order_id in ids)
    assert [shop.refreshed(handle) for handle in handles] == ["reserved"] * 6
    assert [handle.order_id for handle in handles if not isinstance(handle, SegmentedError)] == ids
    assert shop.waiting() == [2, 2, 2]
    assert shop.publisher.messages() == [
        ("".join(shard), [ids[number], ids[number + 3]]) for number, shard in enumerate(shop.shards)
    ]
    for number in range(SHARDS):
        found = shop.submitted(ids[number], number)
        assert (found.state, found.is_in_outbox) == ("reserved", True)
    assert shop.pool.state().reserved == 6


@worked
def test_a_worker_who_decides_is_refused_when_the_pool_is_made(side: Side) -> None:
    message = (
        r"^decides='in the worker' is not supported for 'x' in shards: a worker decides in one shard, and would refuse"
    )
    with pytest.raises(InvalidInput, match=message):
        sharded(side, "x", outbox=Outbox(decides="in the worker"))
    with pytest.raises(InvalidInput, match=message):
        AsyncShardedPool(AsyncMemoryStore(), "x", outbox=Outbox(decides="in the worker"))


def test_the_shards_are_noted_by_each_process(plain_redis_side: Side) -> None:
    shop, raw = Shop(plain_redis_side), plain_redis_side.raw()
    names = ["".join(shard) for shard in shop.shards]
    shop.pool.submit("a")
    assert raw.smismember(OUTBOXES, names) == [1, 1, 1]
    raw.srem(OUTBOXES, *names)
    shop.process().submit("c")
    assert raw.smismember(OUTBOXES, names) == [1, 1, 1]
