"""What the checks sell from: our pool, and the careful pool that each broken one differs from in one place."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol
from zlib import crc32

from segmented.stock import Grant, Pool

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from segmented.stores.redis import RedisStore

LEASE_SECONDS: Final = 0.05
LAPSES: Final = 0.08
PATIENCE: Final = 10.0


class CheckedPool(Protocol):
    """Stock of one sku, in segments."""

    def open(self, stock: int, segments: int) -> None:
        """Put the units in, split evenly."""

    def buy(self, order_id: str, quantity: int, customer_id: str, during: Callable[[], None] | None = None) -> bool:
        """Sell, or refuse; `during` runs while the buyer has its segment, as the slow step of an order would."""

    def resize(self, segments: int) -> None:
        """Split over another number of segments."""

    def left(self) -> int:
        """Count the units that can be bought."""


def oversleep() -> None:
    """Sleep for longer than a lease lives."""
    time.sleep(LAPSES)


class LibraryPool:
    """The pool of this library."""

    def __init__(self, store: RedisStore, sku: str) -> None:
        self.pool = Pool(store, sku, ttl=LEASE_SECONDS)

    def open(self, stock: int, segments: int) -> None:
        self.pool.open(stock=stock, segments=segments)

    def buy(self, order_id: str, quantity: int, customer_id: str, during: Callable[[], None] | None = None) -> bool:  # noqa: ARG002  # no pool of ours chooses by customer
        answer = self.pool.grant(order_id, quantity=quantity, timeout=PATIENCE)
        if not isinstance(answer, Grant):
            return getattr(answer, "state", None) == "confirmed"
        if during is not None:
            during()
        answer.confirm()
        return True

    def resize(self, segments: int) -> None:
        self.pool.resize(segments)

    def left(self) -> int:
        return self.pool.state().available


class CarefulPool:
    """One counter a segment in plain Redis, every change of them in one transaction: passes all checks."""

    def __init__(self, server: redis.Redis, name: str) -> None:
        self.server, self.name = server, name
        self.stock = self.segments = 0

    @property
    def counters(self) -> list[str]:
        """The keys of the segments."""
        return [self.counter(segment) for segment in range(self.segments)]

    def counter(self, segment: int) -> str:
        """The key of one segment."""
        return f"{self.name}:stock:{segment % self.segments}"

    def open(self, stock: int, segments: int) -> None:
        self.stock = stock
        self.split(stock, segments)

    def split(self, units: int, segments: int) -> None:
        """Give each segment its share."""
        self.segments = segments
        for segment, counter in enumerate(self.counters):
            self.server.set(counter, units // segments + (segment < units % segments))

    def buy(self, order_id: str, quantity: int, customer_id: str, during: Callable[[], None] | None = None) -> bool:
        if not self.server.hsetnx(f"{self.name}:orders", order_id, quantity):
            return True
        if self.take(self.segment_of(order_id, customer_id), quantity, during):
            return True
        self.server.hdel(f"{self.name}:orders", order_id)
        return False

    def segment_of(self, order_id: str, customer_id: str) -> int:  # noqa: ARG002  # of use to one that is broken
        """Choose where to begin."""
        return crc32(order_id.encode()) % self.segments

    def take(self, start: int, quantity: int, during: Callable[[], None] | None) -> bool:
        """Take units from as many segments as it needs; the slow step comes before."""
        if during is not None:
            during()
        order = [self.counter(start + offset) for offset in range(self.segments)]

        def change(pipeline: redis.client.Pipeline) -> bool:
            found = [int(pipeline.get(counter) or 0) for counter in order]
            pipeline.multi()
            if sum(found) < quantity:
                return False
            needed = quantity
            for counter, units in zip(order, found, strict=True):
                taken = min(units, needed)
                pipeline.decrby(counter, taken)
                needed -= taken
            return True

        return bool(self.server.transaction(change, *order, value_from_callable=True))  # type: ignore[arg-type]  # it may return a value

    def resize(self, segments: int) -> None:
        self.split(self.left(), segments)

    def left(self) -> int:
        return sum(int(units) for units in self.server.mget(self.counters) if units is not None)
