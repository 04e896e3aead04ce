"""The plans of a pool in shards with a gate: its order database decides every order, and has every unit's shard.

To the database each shard is a pool of its own, under the shard's name. So a call goes to the gated pool of an order's
home shard, and what is left is the way of units between shards: the source gives them up, the database moves them from
the rows of one shard to those of the other, and the target gets them. Whoever finishes a transfer with the gate repeats
all three steps; each of them happens once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial as bind
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from segmented import protocol as op
from segmented.errors import InvalidInput, SegmentedError
from segmented.plans import Outside, Plan, perform
from segmented.stock.plans import one_plan
from segmented.stock.settings import Opening
from segmented.stock.sharded.plans import ShardedPlans, withdrawn_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from segmented.clock import Clock, Duration
    from segmented.models import (
        AlreadyOpen,
        Assigned,
        Closed,
        Opened,
        Order,
        PoolClosed,
        Resized,
        Restocked,
        Settled,
        Shard,
        ShardFound,
        Taken,
        TooFew,
        Transfer,
    )
    from segmented.stock.no_gate import AsyncPoolGate, PoolGate
    from segmented.stock.settings import PoolSettings

AnswerT = TypeVar("AnswerT")


class GatedPlans(ShardedPlans):
    """Routes a pool's operations to its shards, each of which asks the gate. The same for threads and for asyncio."""

    def __init__(
        self,
        settings: PoolSettings,
        sold_out_mark: Duration,
        clock: Clock,
        *,
        gate: PoolGate | AsyncPoolGate,
        pool_of: Callable[[Shard], Any],
        run: Callable[[Plan[Any]], Any],
    ) -> None:
        """Create the plans; `pool_of` returns a shard's gated pool, and `run` runs a plan.

        With asyncio, the pools, the gate and `run` return awaitables.
        """
        super().__init__(settings, sold_out_mark, clock)
        self._gate: Any = gate
        self._pool_of, self._run = pool_of, run
        self._books = self

    # --- the way of units between shards ---

    def store(self, source: Shard, target: Shard, transfer: Transfer) -> Plan[bool]:
        """Move the units of a transfer in the database; False if the source must be rebuilt first."""
        move = bind(self._gate.move_units, source, target, sent=transfer.sent, epoch=transfer.epoch)
        is_stored: bool = yield from perform(Outside(move))
        return is_stored

    def look(self, shard: Shard) -> Plan[ShardFound]:
        """Read a shard, after comparing it with the database, which settles holds that have ended."""
        pool = self._pool_of(shard)
        ask = bind(pool.store.execute, op.LookAtShard(shard))
        look = Outside(bind(self._gate.verified, pool.plain, ask))
        found: ShardFound = yield from perform(look)
        if found.free_in_ms == 0 and (yield from perform(Outside(bind(self._gate.settle_due, pool.plain)))):
            found = yield from perform(look)
        return found

    # --- opening, changing ---

    def open(self, operation: op.OpenPool, shards: int) -> Plan[Opened | AlreadyOpen]:
        """Open all shards, and their rows; of an open pool, check that the database is its own."""
        answer = yield from super().open(operation, shards)
        for shard in (yield from self.found()).shards:
            yield from self.look(shard)
        return answer

    def _opened(self, asked: Sequence[op.OpenPool]) -> Plan[list[Opened | AlreadyOpen]]:
        answers: list[Opened | AlreadyOpen] = []
        for one in asked:  # the first one first: a process without the gate sees by it that the pool is gated
            opening = Opening(
                stock=one.stock,
                segments=one.segment_count,
                gated=True,
                epoch=one.epoch,
                limit_per_customer=one.limit_per_customer,
                profile=str(one.profile),
                queue=one.assignment.queue,
                step=one.assignment.step,
            )
            pool = self._pool_of(one.sku).plain  # type: ignore[arg-type]  # the name of a shard
            answers.append((yield from perform(Outside(bind(self._gate.open_pool, pool, opening)))))
        return answers

    def restock(self, operation: op.Restock) -> Plan[Restocked | Closed]:
        """Add units to one shard, and to its rows."""
        home = yield from self._home_of_change(operation.change_id)
        answer: Restocked | Closed = yield from self._asked(
            home, "restock", operation.units, restock_id=operation.change_id
        )
        return answer

    def withdraw(self, operation: op.Withdraw) -> Plan[Restocked | TooFew]:
        """Remove units from one shard and its rows, after bringing them there if necessary."""
        gathering = yield from self.found()
        home = yield from self._home_of_change(operation.change_id)
        attempt = bind(self._asked, home, "withdraw", operation.units, withdraw_id=operation.change_id)
        return (yield from withdrawn_plan(gathering, home, operation.units, attempt))

    def _resized(self, shards: Sequence[Shard], shares: Sequence[int]) -> Plan[list[Resized]]:
        answers = []
        for shard, share in zip(shards, shares, strict=True):
            answers.append((yield from self._asked(shard, "resize", share)))
        return answers

    def _closed(self, shards: Sequence[Shard]) -> Plan[list[PoolClosed]]:
        return (yield from self._all_asked(shards, "close"))

    def _assigned(self, operations: Sequence[op.AssignPool]) -> Plan[list[Assigned]]:
        shards: list[Any] = [one.sku for one in operations]
        named = operations[0].assignment
        return (yield from self._all_asked(shards, "assign", queue=named.queue, step=named.step))

    def _all_asked(self, shards: Sequence[Shard], call: str, **named: Any) -> Plan[list[Any]]:  # noqa: ANN401  # as `_asked`
        """Make a call to every shard. Raises the first failure after all were tried."""
        answers: list[Any] = []
        failure: SegmentedError | None = None
        for shard in shards:
            try:
                answers.append((yield from self._asked(shard, call, **named)))
            except SegmentedError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return answers

    # --- taking ---

    def reserve(self, operation: op.Reserve) -> Plan[Taken]:
        """Reserve, unless only the database knows the order."""

        def plan_of(_: tuple[Order, ...]) -> Plan[list[Taken]]:
            return one_plan(ShardedPlans.reserve(self, operation))

        answer: Taken | SegmentedError
        (answer,) = yield from self._taken((operation.order,), plan_of, partial=operation.partial)
        if isinstance(answer, SegmentedError):
            raise answer
        return answer

    def reserve_many(self, operation: op.ReserveMany) -> Plan[list[Taken | SegmentedError]]:
        """Reserve for those orders that not only the database knows, shard by shard."""

        def plan_of(left: tuple[Order, ...]) -> Plan[list[Taken | SegmentedError]]:
            return ShardedPlans.reserve_many(self, replace(operation, orders=left))

        return (yield from self._taken(operation.orders, plan_of, partial=operation.partial))

    def _taken(
        self, orders: Sequence[Order], plan_of: Callable[[tuple[Order, ...]], Plan[list[Any]]], *, partial: bool
    ) -> Plan[list[Any]]:
        answers: list[Any] = [None] * len(orders)
        homes = self._homes((yield from self.found()), orders)
        for home, places in _by_shard(homes, answers).items():
            these = tuple(orders[place] for place in places)
            try:
                found = yield from perform(Outside(self._taking(home, these, plan_of, partial=partial)))
            except SegmentedError as error:
                found = [error] * len(places)
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
        return answers

    def _taking(
        self,
        home: Shard,
        orders: tuple[Order, ...],
        plan_of: Callable[[tuple[Order, ...]], Plan[list[Any]]],
        *,
        partial: bool,
    ) -> Callable[[], Any]:
        pool = self._pool_of(home).plain
        return lambda: self._gate.take_orders(pool, orders, lambda left: self._run(plan_of(left)), partial=partial)

    # --- deciding ---

    def confirm(self, operation: op.Confirm, customer_id: str | None) -> Plan[Settled]:
        """Store the order, and confirm it at its home shard."""
        home = self.home((yield from self.found()), operation.order_id, customer_id)
        answer: Settled = yield from self._asked(home, "confirm", operation.order_id, holder_id=operation.holder_id)
        return answer

    def cancel(self, operation: op.Cancel, customer_id: str | None) -> Plan[Settled]:
        """Void the order, and give its units back to its home shard."""
        home = self.home((yield from self.found()), operation.order_id, customer_id)
        answer: Settled = yield from self._asked(home, "cancel", operation.order_id, holder_id=operation.holder_id)
        return answer

    def settle_many(
        self, state: Literal["confirmed", "cancelled"], orders: Iterable[str | Order]
    ) -> Plan[list[Settled | SegmentedError]]:
        """End many reservations, shard by shard."""
        operation, homes = yield from self._settling(state, orders)
        answers: list[Any] = [None] * len(homes)
        name = "confirm_many" if state == "confirmed" else "cancel_many"
        for home, places in _by_shard(homes, answers).items():
            try:
                said = yield from self._asked(home, name, [operation.order_ids[place] for place in places])
            except SegmentedError as error:
                said = [error] * len(places)
            for place, answer in zip(places, said, strict=True):
                answers[place] = answer
        return answers

    def _expired(self, shard: Shard, limit: int) -> Plan[tuple[Settled, ...]]:
        answer: tuple[Settled, ...] = yield from self._asked(shard, "expire", limit=limit)
        return answer

    # --- pieces ---

    def _asked(self, shard: Shard, name: str, *args: Any, **kwargs: Any) -> Plan[Any]:  # noqa: ANN401  # any call
        """Call the shard's gated pool, whose answers end local refusals where units came back."""
        return (yield from perform(Outside(bind(getattr(self._pool_of(shard), name), *args, **kwargs))))


def _by_shard(homes: Iterable[Shard | InvalidInput], answers: list[Any]) -> Mapping[Shard, list[int]]:
    """Return the places of each shard's orders; an order without a home gets its failure as answer."""
    places: defaultdict[Shard, list[int]] = defaultdict(list)
    for place, home in enumerate(homes):
        if isinstance(home, InvalidInput):
            answers[place] = home
        else:
            places[home].append(place)
    return places
