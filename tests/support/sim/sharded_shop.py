"""A pool in shards in the simulator, where each shard is a server of its own.

A batch goes to the shards one by one, in any order, and anything may come between. `Shop.history` says what an order
could have had at each instant: free units, those on the way between shards, and those of lapsed holds. A refusal is
right if at some instant of its request that was less than the order asked for.
"""

import random
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from segmented import protocol as op
from segmented.errors import AlreadySettled, SegmentedError, StoreUnavailable
from segmented.models import Granted, Order, PoolState, Reserved, ShardDirectory, SoldOut
from segmented.plans import Plan, perform
from segmented.stock import ShardedAuditReport
from segmented.stock.settings import PoolSettings
from segmented.stock.sharded.audit import sharded_audit_plan
from segmented.stock.sharded.opening import home_of
from segmented.stock.sharded.plans import ShardedPlans
from tests.support.sim.simulator import Simulation, Sleep, scattered

SKU: Final = "ticket"
SHARDS: Final = 3
GATHER_LOCK: Final = f"pool:{SKU}:gather"
TTL_MS: Final = 300
HOLD_MS: Final = 400
TRIES: Final = 20


def insisting(operation: op.Operation[Any], after: float) -> Plan[None]:
    """Perform an operation again, as a client or a network may do it late; nobody hears the answer."""
    yield from perform(Sleep(after))
    with suppress(SegmentedError):
        yield from perform(operation)


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal, and the instants of its request."""

    answer: SoldOut
    began_at: float
    ended_at: float


class Shop:
    """A world with one pool in shards. After every step it is checked that no unit came or went."""

    def __init__(
        self, seed: int, stock: int, *, shards: int = SHARDS, lost_replies: float = 0.0, kills: float = 0.0
    ) -> None:
        self.world = Simulation(seed)
        self.chance = random.Random(seed)
        self.stock = stock
        self.stalls = 0.0
        """How often a process stops for longer than the lock of who gathers lives, and a message comes again."""
        self.history: list[tuple[float, int]] = []
        self.refusals: list[Refused] = []
        opened = op.OpenPool(SKU, stock, 2 * shards, gated=False)
        self.directory: ShardDirectory = self.directory_of(self.plans(), opened, shards)
        self.world.lost_replies, self.world.kills = lost_replies, kills

    def directory_of(self, plans: ShardedPlans, opened: op.OpenPool, shards: int) -> ShardDirectory:
        self.done(plans.open(opened, shards))
        gathering = self.done(plans.found())
        found: ShardDirectory = gathering.directory
        return found

    def plans(self) -> ShardedPlans:
        """What one process has of the pool."""
        return ShardedPlans(PoolSettings(SKU, ttl=TTL_MS / 1_000, hold=HOLD_MS / 1_000), 0.0, self.world.clock)

    def states(self) -> list[PoolState]:
        return [self.world.model.execute(op.ReadPool(shard)) for shard in self.directory.shards]

    def away(self, states: list[PoolState]) -> int:
        """Return the units on the way: those sent and not received, whatever the source has heard of that."""
        sent = sum(one.units for state in states for one in state.transfers if one.kind == "sent")
        return sent - sum(one.units for state in states for one in state.transfers if one.kind == "received")

    def lapsed(self) -> int:
        """Return the units of lapsed holds that nobody has given back."""
        units = 0
        for shard in self.directory.shards:
            due = self.world.model.execute(op.ListDue(shard, 1_000))
            records = self.world.model.execute(op.ReadOrders(shard, due))
            units += sum(record.quantity for record in records if record is not None)
        return units

    def check(self) -> None:
        """At any moment, also while units are on the way: every unit is in one place."""
        states = self.states()
        available, away = sum(state.available for state in states), self.away(states)
        assert min(away, *(state.available for state in states)) >= 0
        assert available + away + sum(state.reserved + state.confirmed for state in states) == self.stock
        self.history.append((self.world.clock.now(), available + away + self.lapsed()))

    def run(self) -> None:
        self.world.run(check=self.check, steps_max=400_000)

    def done(self, plan: Plan[Any]) -> Any:  # noqa: ANN401  # the plan's outcome
        """Run a plan alone, with nothing lost, and return what it returns."""
        actor = self.world.start("alone", plan)
        self.world.run()
        if isinstance(actor.outcome, BaseException):
            raise actor.outcome
        return actor.outcome

    def trouble(self, effect: Any) -> Plan[None]:  # noqa: ANN401  # an effect of any answer
        """Stop for a while, or have a step of a transfer repeated at some later time."""
        if isinstance(effect, op.SendUnits | op.ReceiveUnits | op.AcknowledgeUnits):
            if self.chance.random() < 10 * self.stalls:
                after = self.chance.choice([0.001, 0.01, 0.1, 3.0])
                self.world.start("again", insisting(effect, after), process=f"again-{self.world.steps}")
            if self.chance.random() < 10 * self.stalls:
                yield from perform(Sleep(3.0))
        elif self.chance.random() < self.stalls:
            yield from perform(Sleep(3.0))

    def buyer(self, plans: ShardedPlans, order: Order, end: str, *, granted: bool = False) -> Plan[object]:
        """Take an order to its end; try again when a reply was lost, as a caller would."""
        first_at = self.world.clock.now()
        for attempt in range(TRIES):
            began_at = self.world.clock.now()
            take: Plan[Any] = plans.reserve(op.Reserve(SKU, order, HOLD_MS))
            if granted:
                operation = op.Grant(SKU, order, f"{order.order_id}-{attempt}", TTL_MS, HOLD_MS, keep_refusal=False)
                take = plans.grant(operation, None, fair=False)
            try:
                answer = yield from scattered(take, self.chance, self.trouble)
                answer = answer[0] if granted else answer
                if isinstance(answer, SoldOut):
                    self.refusals.append(Refused(answer, began_at, self.world.clock.now()))
                if not isinstance(answer, Granted | Reserved) or end == "forget":
                    return answer
                yield from perform(Sleep(0.02))
                if end == "cancel":
                    return (yield from scattered(plans.cancel(op.Cancel(SKU, order.order_id), None), self.chance))
                return (yield from scattered(plans.confirm(op.Confirm(SKU, order.order_id), None), self.chance))
            except StoreUnavailable:
                continue
            except AlreadySettled as late:  # it stood still for longer than its hold
                if late.state == "expired" and self.world.clock.now() >= first_at + HOLD_MS / 1_000:
                    return late.settled
                raise
        return "gave up"

    def check_refusals(self) -> None:
        """Was less free than each refused order asked for, at some instant of its request, or of what it rests on?"""
        for one in self.refusals:
            since = one.began_at - one.answer.age_ms / 1_000  # the age counts from an instant of the request
            found = [unsold for at, unsold in self.history if since <= at <= one.ended_at]
            assert min(found) < one.answer.quantity, (one, min(found))
            assert one.answer.available < one.answer.quantity

    def end(self) -> ShardedAuditReport:
        """Let holds lapse; a last buyer gets every unit that was not sold; the books are right."""
        self.world.kills = self.world.lost_replies = 0.0
        self.world.clock.advance(2.0)
        left = self.stock - sum(state.confirmed for state in self.states())
        plans = self.plans()
        if left:
            last = self.done(scattered(plans.reserve(op.Reserve(SKU, Order("last", left), HOLD_MS)), self.chance))
            assert isinstance(last, Reserved), (last, left)
            assert last.quantity == left
        refused = self.done(plans.reserve(op.Reserve(SKU, Order("too late", 1), HOLD_MS)))
        assert isinstance(refused, SoldOut)
        assert (refused.available, refused.reserved) == (0, left)
        assert self.done(plans.finish_transfers()) == 0
        self.check()
        report: ShardedAuditReport = self.done(sharded_audit_plan(self.directory))
        assert report.drift == ()
        assert (report.oversold, report.refused_wrongly, report.away) == (0, 0, 0)
        assert (report.state.available, report.state.reserved) == (0, left)
        return report


def order_of(shop: Shop, number: int, word: str = "order") -> str:
    """Return an order's id that is at home in that shard."""
    names = (f"{word}{index}" for index in range(1_000))
    count = len(shop.directory.shards)
    return next(name for name in names if home_of(name, count) == number)
