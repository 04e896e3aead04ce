"""Strategies over plain counters: their base, with a list of sold orders and a verdict, and K counters under our locks.

A buyer reads a counter and writes it back; the subclass guards that. The order is appended to a list in the same
transaction as the counter's write, or stored as a row before it if the critical section commits. Repeated orders are
not detected. These strategies do not use the library, and have a Redis client of their own.

K counters, each under one of our locks. A buyer draws one at random and uses no other: an order is refused as soon as
its random segment is exhausted, however many units the others have, which the checker reports. Or a buyer starts at a
random segment and takes the next free one. If all locks are taken, it waits for the first; if a segment is exhausted,
it tries the next, and refuses if all are. A counter only decreases, so a segment read as exhausted stays so, even
without its lock; after the first exhausted one a buyer reads all counters. Its fault: an order for several units is
refused if no single segment has enough, although together they have. A store counts failed lock attempts, because
neither pools nor locks report them.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, delete, insert, select

from bench.sizing import oversold
from bench.strategies.base import LEASE_SECONDS, WAIT_SECONDS, GaveUp, Guarantees, Refused, Sold, Strategy, Verdict
from segmented.errors import AcquireTimeout
from segmented.keys import lock_keys
from segmented.locks.lock import Lock
from segmented.models import Busy, Held
from segmented.protocol.wire import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.strategies.base import Answer, StrategyContext
    from segmented.errors import SegmentedError
    from segmented.locks.lease import Lease
    from segmented.models import Order
    from segmented.plans.drivers import Store, Wakeups
    from segmented.protocol import Operation

REPLY_SECONDS: Final = 2 * LEASE_SECONDS
"""Socket timeout for a reply; a blocking command may take as long as a lease."""
metadata: Final = MetaData()
unguarded_orders: Final = Table(
    "bench_unguarded_orders",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("sku", String(256), nullable=False),
    Column("order_id", String(256), nullable=False),
    Column("quantity", BigInteger, nullable=False),
)
AnswerT = TypeVar("AnswerT")


class CountingClient(redis.Redis):
    """Counts SET NX, with which all lock libraries request a lock."""

    asked = 0

    def set(  # type: ignore[override]  # only the arguments that these libraries use
        self, name: str, value: str | bytes | int, *, ex: int | None = None, px: int | None = None, nx: bool = False
    ) -> object:
        """Set a key, as redis-py does, and count SET NX."""
        self.asked += nx
        return super().set(name, value, ex=ex, px=px, nx=nx)


def client_of(context: StrategyContext) -> CountingClient:
    """Return a client with the URL's number of connections and without retries, which would hide errors."""
    client = CountingClient.from_url(context.url, socket_timeout=REPLY_SECONDS, retry=Retry(NoBackoff(), 0))
    assert isinstance(client, CountingClient)  # for the type checker
    return client


def split(stock: int, segments: int) -> tuple[int, ...]:
    """Return all units by segment, as evenly as possible."""
    each, rest = divmod(stock, segments)
    shares = tuple(each + (segment < rest) for segment in range(segments))
    assert sum(shares) == stock, "a split of units neither creates nor loses one"
    return shares


class CountedStrategy(Strategy):
    """Sells from counters in Redis by reading and writing them back."""

    guarantees: ClassVar[Guarantees] = Guarantees(
        never_oversells=False,  # a holder that outlives its lease overwrites the next holder's write
        one_effect_per_order=False,
        section="one at a time",
        fencing=False,
        after_a_crash="the lock ends with its lease; an order that was stored but not counted is sold again",
    )

    def __init__(self, context: StrategyContext) -> None:
        """Connect, and create the table if orders are stored in one."""
        super().__init__(context)
        self.client = client_of(context)
        if context.engine is not None:
            metadata.create_all(context.engine)
        self._sku = ""
        self._stock = 0
        self._taken = 0
        """Units sold, or of orders that may still get them: the "sequence" of a refusal, since there is no ledger."""
        self.counters: list[str] = []
        """Keys, by segment."""

    @property
    def _sold(self) -> str:
        return f"bench:{self._sku}:sold"

    def open(self, sku: str, stock: int) -> None:
        """Set the counters."""
        self._sku, self._stock = sku, stock
        self._taken = 0
        self.counters = [f"bench:{sku}:available:{segment}" for segment in range(self.segments)]
        self.client.mset(dict(zip(self.counters, split(stock, self.segments), strict=True)))

    def _read(self, segment: int = 0) -> int:
        return int(text(self.client.get(self.counters[segment])))

    def sell_guarded(self, order: Order, segment: int = 0) -> float | Refused:
        """Read, run the slow step, record the order, write. Return when the slow step could begin.

        The caller excludes all others from this counter meanwhile.
        """
        self._taken += order.quantity
        left = self._read(segment)
        if left < order.quantity:
            self._taken -= order.quantity
            return self.refusal(order)
        granted_at = time.monotonic()
        self.context.section.run()
        self._write(order, segment, left - order.quantity)
        return granted_at

    def refusal(self, order: Order) -> Refused:
        """Return the refusal of an order for which no segment has enough units, or none that this buyer may use."""
        return Refused(self._taken, order.quantity)

    def _write(self, order: Order, segment: int, left: int) -> None:
        counter = self.counters[segment]
        if self._stored(order):
            self.client.set(counter, left)
            return
        with self.client.pipeline(transaction=True) as both:
            both.set(counter, left)
            both.rpush(self._sold, noted(order))
            both.execute()

    def _stored(self, order: Order) -> bool:
        """Commit the order's row if the critical section commits; no constraint refuses it."""
        if not self.context.section.commits or self.context.engine is None:
            return False
        values = {"sku": self._sku, "order_id": order.order_id, "quantity": order.quantity}
        with self.context.engine.connect() as connection:
            connection.execute(insert(unguarded_orders), values)
        return True

    def sold_at(self, granted_at: float, segment: int | None = None, *, attempts: int = 1) -> Sold:
        """Return the answer of an order whose lock, if any, has been released; its hold counts from the read."""
        return Sold(granted_at, time.monotonic(), segment, attempts)

    def judge(self, refusals: Sequence[Refused]) -> Verdict:
        """Count the recorded orders. The counters themselves show nothing unusual."""
        sold = self._noted()
        units = sum(quantity for _, quantity in sold)
        left = self.units_left()
        available = sum(left)
        commits = self.context.section.commits
        return Verdict(
            sold=units,
            available=sum(max(0, one) for one in left),
            sold_in_sql=units if commits else None,
            oversold_in_redis=max(0, -available) if commits else oversold(units, self._stock),
            oversold_in_sql=oversold(units, self._stock) if commits else 0,
            refused_wrongly=sum(self._stock - refusal.sequence >= refusal.quantity for refusal in refusals),
            audit="none",
            duplicates=len(sold) - len({order_id for order_id, _ in sold}),
            sold_ids=frozenset(order_id for order_id, _ in sold),
            left=self.free_by_segment(),
        )

    def units_left(self) -> tuple[int, ...]:
        """Read all counters: the free units of each segment, also of a single one."""
        return tuple(int(text(units)) for units in self.client.mget(self.counters))

    def free_by_segment(self) -> tuple[int, ...]:
        """Read all counters."""
        return self.units_left() if self.segments > 1 else ()

    def _noted(self) -> list[tuple[str, int]]:
        if self.context.section.commits and self.context.engine is not None:
            asked = select(unguarded_orders.c.order_id, unguarded_orders.c.quantity)
            with self.context.engine.connect() as connection:
                rows = connection.execute(asked.where(unguarded_orders.c.sku == self._sku))
                return [(row.order_id, row.quantity) for row in rows]
        lines = (text(line).rpartition(" ") for line in self.client.lrange(self._sold, 0, -1))
        return [(order_id, int(quantity)) for order_id, _, quantity in lines]

    def close(self) -> None:
        """Disconnect."""
        self.client.close()

    def clear(self) -> None:
        """Remove the counters and the rows; the empty table stays."""
        self.client.unlink(*self.counters, self._sold)
        if self.context.engine is not None:
            with self.context.engine.begin() as connection:
                connection.execute(delete(unguarded_orders).where(unguarded_orders.c.sku == self._sku))


def noted(order: Order) -> str:
    """Return an order's line in the list of orders sold."""
    return f"{order.order_id} {order.quantity}"


class CountingStore:
    """Passes all operations on to a store.

    It does not see the attempts that a release makes for the next waiter: successful ones are counted as sales, and
    they rarely fail.
    """

    def __init__(self, store: Store) -> None:
        """Count what `store` answers."""
        self._store = store
        self.clock = store.clock
        self._in_vain = 0
        self._told = 0

    @property
    def wakeups(self) -> Wakeups:
        """Return the waiters of this process."""
        return self._store.wakeups

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Perform one operation."""
        answer = self._store.execute(operation, deadline=deadline)
        if isinstance(answer, Busy | Held):
            self._in_vain += 1
        return answer

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform several operations; none of them requests a lock."""
        return self._store.execute_many(operations, deadline=deadline)

    def close(self) -> None:
        """Do nothing: the owner of the store closes it."""

    def attempts(self) -> int:
        """Return the attempts of a sale: its own, and all failed ones since the last sale, by any buyer."""
        in_vain = self._in_vain
        self._told, found = in_vain, in_vain - self._told
        return 1 + found


class SegmentsRandom(CountedStrategy):
    """A segment at random, and no other."""

    name: ClassVar[str] = "segments-random"
    summary: ClassVar[str] = "K counters, each with a lock; a segment at random, and no other"
    has_segments: ClassVar[bool] = True
    guarantees: ClassVar[Guarantees] = replace(
        CountedStrategy.guarantees, sold_out_is_exact=False, section="one a segment"
    )

    def open(self, sku: str, stock: int) -> None:
        """Set the counters, and create the locks."""
        super().open(sku, stock)
        self.store = CountingStore(self.context.store)
        self.locks = [Lock(self.store, counter, ttl=LEASE_SECONDS) for counter in self.counters]

    def buy(self, order: Order) -> Answer:
        """Draw a segment, wait for its lock, read, run the slow step, write, release."""
        segment = random.randrange(self.segments)  # not a secret; the run's seed repeats it
        try:
            lease = self.locks[segment].acquire(timeout=WAIT_SECONDS)
        except AcquireTimeout as error:
            return GaveUp(str(error))
        with lease:
            found = self.sell_guarded(order, segment)
        return found if isinstance(found, Refused) else self.sold_at(found, segment, attempts=self.store.attempts())

    def clear(self) -> None:
        """Remove the counters and the locks' keys."""
        super().clear()
        for lock in self.locks:
            keys = lock_keys(lock.name)
            self.client.unlink(keys.lock, keys.fence)


class SegmentsTryNext(SegmentsRandom):
    """The next that is free."""

    name: ClassVar[str] = "segments-try-next"
    summary: ClassVar[str] = "K counters, each with a lock; from a segment at random to the next that is free"

    def buy(self, order: Order) -> Answer:
        """Find a segment with units and a free lock, and run the slow step under it."""
        first = random.randrange(self.segments)  # not a secret; the run's seed repeats it
        round_trip = [(first + step) % self.segments for step in range(self.segments)]
        until = time.monotonic() + WAIT_SECONDS
        while round_trip:
            taken = self._first_free(round_trip, until)
            if taken is None:
                return GaveUp(f"no segment was free within {WAIT_SECONDS:g} s")
            segment, lease = taken
            with lease:
                found = self.sell_guarded(order, segment)
            if not isinstance(found, Refused):
                return self.sold_at(found, segment, attempts=self.store.attempts())
            left = self.units_left()
            round_trip = [other for other in round_trip if left[other] >= order.quantity]
        return self.refusal(order)

    def _first_free(self, segments: list[int], until: float) -> tuple[int, Lease] | None:
        """Return the first free segment and its lease; if none is free, wait for the first."""
        for segment in segments:
            lease = self.locks[segment].try_acquire()
            if lease is not None:
                return segment, lease
        try:
            return segments[0], self.locks[segments[0]].acquire(timeout=max(0.0, until - time.monotonic()))
        except AcquireTimeout:
            return None
