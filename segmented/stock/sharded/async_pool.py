"""The pool in shards, for asyncio: a second shell over the plans that `pool` runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented import protocol as op
from segmented.errors import SegmentedError
from segmented.locks.durations import checked_timeout
from segmented.models import Granted, check_id
from segmented.plans import run_async
from segmented.plans.store_kinds import checked_async
from segmented.stock.async_grant import AsyncGrant, Granting
from segmented.stock.async_pool import AsyncPool
from segmented.stock.order_handle import AsyncOrderHandle
from segmented.stock.settings import DEFAULT_HOLD, DEFAULT_TTL, PoolSettings, as_order
from segmented.stock.sharded.audit import ShardedAuditReport, sharded_audit_plan
from segmented.stock.sharded.plans import ShardedPlans
from segmented.stock.sharded.repair import ShardedRepairReport, sharded_repair_plan
from segmented.stock.sharded.submitting import publish, sharded_outbox

if TYPE_CHECKING:
    from collections.abc import Iterable

    from segmented.models import (
        AlreadyOpen,
        Closed,
        Opened,
        Order,
        PoolClosed,
        Refusal,
        Resized,
        Restocked,
        Settled,
        ShardedState,
        Superseded,
        Taken,
        TooFew,
    )
    from segmented.plans.drivers import AsyncStore
    from segmented.stock.outbox import Outbox


class AsyncShardedPool:
    """A stock of one sku that is split over several hash slots; otherwise as `ShardedPool`."""

    def __init__(
        self,
        store: AsyncStore,
        sku: str,
        *,
        ttl: float = DEFAULT_TTL,
        hold: float = DEFAULT_HOLD,
        sold_out_mark: float = 0.0,
        outbox: Outbox | None = None,
    ) -> None:
        """Sell `sku` from `store`; the parameters are those of `AsyncPool`.

        Each shard merges calls that are made together into batches, as an `AsyncPool` does. Units of submitted orders
        are taken at acceptance: raises InvalidInput for an `outbox` that decides in the worker.
        """
        self.store = checked_async(store, type(self).__name__)
        self.sku = sku
        self.outbox = sharded_outbox(sku, outbox)
        self._ttl, self._hold = ttl, hold
        self._settings = PoolSettings(sku, ttl=ttl, hold=hold)
        self._plans = ShardedPlans(self._settings, sold_out_mark, store.clock)
        self._shards: tuple[AsyncPool, ...] = ()

    async def open(
        self, *, stock: int, segments: int, shards: int, epoch: int = 1, customer_limit: int | None = None
    ) -> Opened | AlreadyOpen:
        """Open the pool once, its stock and segments split evenly over `shards`, which lie on the masters in turn.

        Opening again changes nothing and says what is there. The number of shards stays. Raises PoolInShards when the
        sku is sold by a `Pool`, and ShardVanished when what is left of it shows that data was lost. An opening that was
        cut short is gone on with, in the numbers with which it began: the answer's state tells them.
        """
        operation = self._settings.open(stock, segments, gated=False, epoch=epoch, customer_limit=customer_limit)
        return await run_async(self._plans.open(operation, shards), self.store)

    async def shards(self) -> tuple[AsyncPool, ...]:
        """Return the shards, each a pool of its own; the directory is read once. Raises PoolMissing.

        To read ledgers and to trim them. An order that is reserved at a shard itself is found again only there.
        """
        if not self._shards:
            names = (await run_async(self._plans.found(), self.store)).shards
            pools = tuple(AsyncPool(self.store, name, ttl=self._ttl, hold=self._hold) for name in names)
            for pool in pools:
                pool._mark.on_clear = self._plans.note_return  # noqa: SLF001  # what a shard gets back, the whole has
            self._shards = self._shards or pools  # another task may have been as quick
        return self._shards

    async def shard_of(self, order_id: str, *, customer_id: str | None = None) -> AsyncPool:
        """Return the shard where an order is at home; in a pool with a limit its customer decides."""
        shards = await self.shards()
        gathering = await run_async(self._plans.found(), self.store)
        return shards[self._plans.home(gathering, order_id, customer_id).number]

    @property
    def refused_by_mark(self) -> int:
        """How many orders the sold-out mark has refused here, without a command sent."""
        return self._plans.mark.refused_count

    async def state(self) -> ShardedState:
        """Read all shards and add them up; `shards` of the answer has each. Each is read in one step, all are not.

        Raises PoolMissing, and ShardVanished.
        """
        return await run_async(self._plans.state(), self.store)

    def grant(
        self,
        order: Order | str,
        *,
        quantity: int = 1,
        timeout: float | None = None,
        holder_id: str | None = None,
        keep_refusal: bool = False,
        partial: bool = False,
        fair: bool = False,
    ) -> Granting:
        """`await` it for the answer, or use it as `async with pool.grant(order) as grant`; see `ShardedPool.grant`."""
        operation = self._settings.grant(
            as_order(order, quantity), holder_id=holder_id, keep_refusal=keep_refusal, partial=partial
        )
        return Granting(self, operation, checked_timeout(timeout), fair=fair)

    async def reserve(self, order: Order | str, *, quantity: int = 1, partial: bool = False) -> Taken:
        """Take units for the pool's hold time, without a lock; with `partial`, what is left if that is less.

        When the call is cancelled, what its home shard took for it is given back, as by `AsyncPool.reserve`. Cancelled
        while units are brought from other shards, it may keep its units until the hold lapses; a repeat has them.
        """
        found, mark = as_order(order, quantity), self._plans.mark
        refused = mark.refusal(found, partial=partial) if mark.seconds else None
        if refused is not None:
            return refused
        home = await self.shard_of(found.order_id, customer_id=found.customer_id)
        asked_at = mark.now()
        answer = await home.reserve(found)
        operation = op.Reserve(self.sku, found, self._settings.hold_ms, partial)
        answer, asked_at = await run_async(self._plans.reserve_on(operation, (answer, asked_at)), self.store)
        if mark.seconds:
            mark.note(found.order_id, answer, asked_at)
        return answer

    async def reserve_many(self, orders: Iterable[Order], *, partial: bool = False) -> list[Taken | SegmentedError]:
        """Reserve for many orders, at each shard up to 1,000 in a round trip; see `Pool.reserve_many`.

        A shard that cannot be asked is the failure of its own orders only.
        """
        operation = self._settings.reserve_many(orders, partial=partial)
        return await run_async(self._plans.reserve_many(operation), self.store)

    async def submit(self, order: Order | str, *, quantity: int = 1) -> AsyncOrderHandle:
        """Accept an order at its home shard, and have a worker told of it; see `AsyncPool.submit`.

        Units are taken now, from whatever shards have them. One round trip, where the order's home has enough.
        """
        (answer,) = await self.submit_many((as_order(order, quantity),))
        if isinstance(answer, SegmentedError):
            raise answer
        return answer

    async def submit_many(self, orders: Iterable[Order]) -> list[AsyncOrderHandle | SegmentedError]:
        """Accept many orders; a handle each, or the failure of `submit` in its place.

        The first call also writes down, for whoever sweeps, that orders are submitted to these shards. A shard that
        cannot be asked is the failure of its own orders only.
        """
        operation = self._settings.submit_many(orders, self.outbox)
        found = await run_async(self._plans.submit(operation), self.store)
        publish(self.outbox, found)
        pairs = zip(operation.orders, found, strict=True)
        return [
            one if isinstance(one, SegmentedError) else AsyncOrderHandle(self.store, one[0], order.order_id, one[1])
            for order, one in pairs
        ]

    async def handle(self, order_id: str, *, customer_id: str | None = None) -> AsyncOrderHandle:
        """Return the handle of an order that was submitted, here or by another process; it asks the home shard.

        In a pool with a limit its customer says which that is. Only the directory is read, once.
        """
        check_id(order_id, "order id")
        home = self._plans.home(await run_async(self._plans.found(), self.store), order_id, customer_id)
        return AsyncOrderHandle(self.store, home, order_id)

    async def confirm(self, order_id: str, *, holder_id: str | None = None, customer_id: str | None = None) -> Settled:
        """Make the order final; a pool with a limit wants the customer named, to find the order. See `Pool.confirm`."""
        self._settings.confirm(order_id, holder_id=holder_id)  # checks the ids
        return await (await self.shard_of(order_id, customer_id=customer_id)).confirm(order_id, holder_id=holder_id)

    async def cancel(
        self, order_id: str, *, holder_id: str | None = None, customer_id: str | None = None
    ) -> Settled | Superseded:
        """Give the units back, to the order's home shard; see `confirm` and `Pool.cancel`."""
        self._settings.cancel(order_id, holder_id=holder_id, voided=False)  # checks the ids
        return await (await self.shard_of(order_id, customer_id=customer_id)).cancel(order_id, holder_id=holder_id)

    async def confirm_many(self, orders: Iterable[str | Order]) -> list[Settled | SegmentedError | None]:
        """Confirm many orders, by their ids, or as orders where the pool has a limit; see `Pool.confirm_many`."""
        return await run_async(self._plans.settle_many("confirmed", orders), self.store)

    async def cancel_many(self, orders: Iterable[str | Order]) -> list[Settled | SegmentedError | None]:
        """Cancel many orders, by their ids, or as orders where the pool has a limit; see `Pool.cancel_many`."""
        return await run_async(self._plans.settle_many("cancelled", orders), self.store)

    async def expire(self, *, limit: int = 1_000) -> tuple[Settled, ...]:
        """Give back what lapsed holds kept, up to `limit` orders, shard after shard."""
        return await run_async(self._plans.expire(self._settings.expire_limit(limit)), self.store)

    async def restock(self, units: int, *, restock_id: str) -> Restocked | Closed:
        """Put units in while the sale runs, once for each id. They go to one shard, and from there where wanted.

        The id says to which; `available` in the answer is what that shard has free.
        """
        return await run_async(self._plans.restock(self._settings.restock(units, restock_id)), self.store)

    async def withdraw(self, units: int, *, withdraw_id: str) -> Restocked | TooFew:
        """Take free units out while the sale runs, all or none, once for each id, from whatever shards have them.

        `available` in the answer is what one shard has free then; in TooFew, what all have.
        """
        return await run_async(self._plans.withdraw(self._settings.withdraw(units, withdraw_id)), self.store)

    async def resize(self, segments: int) -> Resized:
        """Change the number of segments, over all shards, while the sale runs; the number of shards stays.

        Raises StoreUnavailable when a shard does not answer; the others have changed then. Call it again.
        """
        return await run_async(self._plans.resize(segments), self.store)

    async def close(self) -> PoolClosed:
        """Take no new orders any more. What is reserved can still be confirmed, cancelled, or lapse.

        Raises StoreUnavailable when a shard does not answer; the others are closed then. Call it again.
        """
        return await run_async(self._plans.close(), self.store)

    async def finish_transfers(self) -> int:
        """Bring in all units that are on the way between shards, whoever sent them; returns how many transfers were.

        An order that is short does this by itself; at the end of a sale it makes the numbers of the shards final.
        """
        return await run_async(self._plans.finish_transfers(), self.store)

    async def audit(self) -> ShardedAuditReport:
        """Audit every shard and the transfers between them; safe while the pool sells."""
        gathering = await run_async(self._plans.found(), self.store)
        return await run_async(sharded_audit_plan(gathering.directory), self.store)

    async def repair(self, report: ShardedAuditReport, *, yes: bool) -> ShardedRepairReport:
        """Mend what an audit's `report` names, if it is still so; without a yes, only tell what would be done.

        Each shard as `Pool.repair` does; a transfer that a shard lost with its data is brought in again from the ledger
        of the shard that sent it, and so is what is on the way. Safe while the pool sells, and safe to run twice.
        """
        gathering = await run_async(self._plans.found(), self.store)
        try:
            return await run_async(sharded_repair_plan(gathering, report, self._settings.hold_ms, yes=yes), self.store)
        finally:
            self._plans.note_return()  # what came in ends what refuses orders here

    async def _granted(self, operation: op.Grant, timeout: float | None, *, fair: bool) -> AsyncGrant | Refusal:
        pools = await self.shards()
        answer, asked_at, home = await run_async(self._plans.grant(operation, timeout, fair=fair), self.store)
        return AsyncGrant(pools[home.number], answer, asked_at) if isinstance(answer, Granted) else answer

    def __repr__(self) -> str:
        """Name the pool."""
        return f"AsyncShardedPool({self.sku!r}, {self.store!r})"
