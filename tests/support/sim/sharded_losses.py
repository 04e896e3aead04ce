"""A sale in shards, each a server of its own that loses changes, and an operator who knows what customers have.

A process that has seen a loss freezes the shard at once. The judge keeps its own books of what was confirmed. While
no shard is frozen every unit is in one place, whatever transfers a shard has forgotten, and wherever they were.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from segmented import protocol as op
from segmented.errors import AlreadySettled, InvalidInput, OrderUnknown, PoolFrozen, PoolNotFrozen, StoreUnavailable
from segmented.keys import shard_keys
from segmented.models import Granted, Order, Reserved, Settled, Shard
from segmented.plans import Plan, perform, substituted
from segmented.protocol import Effect
from segmented.stock.sharded.opening import home_of
from segmented.stock.sharded.plans import ShardedPlans
from segmented.stock.thawing import thaw_plan
from tests.support.sim.replicas import replica_of
from tests.support.sim.sharded_shop import HOLD_MS, SHARDS, SKU, Shop
from tests.support.sim.simulator import Sleep, scattered

STOCK: Final = 12
ORDERS: Final = 9
TRIES: Final = 12
ENDS: Final = ("confirm", "confirm", "cancel", "forget")


@dataclass(frozen=True, slots=True)
class Copy:
    """A shard at one moment, as a replica has it."""

    at: tuple[int, int]
    """Epoch and sequence number."""
    notes: dict[bytes, bytes]
    """Its notes of transfers."""
    take_over: Callable[[], None]

    def differing(self, other: "Copy", kind: str) -> list[bytes]:
        """Return the notes of this kind that another copy has otherwise, or not at all."""
        names = {name for name in (*self.notes, *other.notes) if name.startswith(kind.encode())}
        return [name for name in names if self.notes.get(name) != other.notes.get(name)]


class ForgetfulShop(Shop):
    """One sale. Only one shard is frozen by a loss at a time; others may follow from what its thaw finds."""

    def __init__(self, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.ever: dict[str, int] = {}
        """Every order that was ever confirmed, and its units."""
        self.overbooked: set[str] = set()
        """Orders that a thaw cancelled, because their shard had no units for them."""
        super().__init__(seed, STOCK)
        self.world.lost_replies, self.world.kills, self.stalls = 0.02, 0.004, 0.02
        self._copies = {shard: self._copied(shard) for shard in self.directory.shards}
        self._execute = self.world.model.execute
        self.world.model.execute = self._watched  # type: ignore[method-assign]  # the judge sees every answer

    def _watched(self, operation: op.Operation[Any]) -> Any:  # noqa: ANN401  # of any operation
        answer = self._execute(operation)
        if isinstance(answer, Settled) and answer.state == "confirmed" and not answer.replay:
            self.ever[answer.order_id] = answer.quantity
        if isinstance(operation, op.ThawPool):
            self.overbooked |= {order_id for order_id, end in operation.decided if end == "cancelled"}
        if isinstance(operation, op.ReceiveUnits) and answer.later_epoch:
            self.counts["forgotten transfers that came late"] += 1
        return answer

    # --- who takes part ---

    def sell(self) -> None:
        """Start everything that happens until the end."""
        plans = [self.plans() for _ in range(3)]
        for number in range(ORDERS):
            order = Order(f"o{number}", self.chance.randint(1, 3))
            shop = self.chance.randrange(3)
            plan = self._buys(plans[shop], order, self.chance.choice(ENDS), self.chance.uniform(0, 0.1))
            self.world.start(order.order_id, plan, process=f"shop {shop}")
        for number in range(2):
            self.world.start(f"operator {number}", self._operates(self.chance.uniform(0, 0.05)))
        self.world.start("nature", self._fails(), process="nature")
        self.run()

    def _buys(self, plans: ShardedPlans, order: Order, end: str, delay: float) -> Plan[object]:
        yield from perform(Sleep(delay))
        for attempt in range(TRIES):
            try:
                taken = yield from scattered(plans.reserve(op.Reserve(SKU, order, HOLD_MS)), self.chance, self.trouble)
                if not isinstance(taken, Granted | Reserved) or end == "forget":
                    return taken
                yield from perform(Sleep(0.02))
                if end == "cancel":
                    return (yield from scattered(plans.cancel(op.Cancel(SKU, order.order_id), None), self.chance))
                return (yield from scattered(plans.confirm(op.Confirm(SKU, order.order_id), None), self.chance))
            except PoolFrozen:
                self.counts["PoolFrozen"] += 1
                yield from perform(Sleep(0.01 * 2**attempt))
            except AlreadySettled as ended:
                if ended.state != "cancelled" or order.order_id not in self.overbooked:
                    raise
                return ended.settled
            except (OrderUnknown, StoreUnavailable):
                continue
        return "gave up"

    def _fails(self) -> Plan[None]:
        for _ in range(self.chance.randint(2, 5)):
            for act in (self._replicate, self._fail_over):
                yield from perform(Sleep(self.chance.uniform(0, 0.05)))
                act()

    def _replicate(self) -> None:
        shard = self.chance.choice(self.directory.shards)
        self._copies[shard] = self._copied(shard)

    def _fail_over(self) -> None:
        shard = self.chance.choice(self.directory.shards)
        lost, kept = self._copied(shard), self._copies[shard]
        if any(map(self._is_frozen, self.directory.shards)) or kept.at[0] != lost.at[0]:
            return
        self.counts["lost suffixes"] += lost.at > kept.at
        self.counts["forgotten sendings"] += len(lost.differing(kept, "sent:"))
        self.counts["forgotten receipts"] += len(lost.differing(kept, "received:"))
        kept.take_over()
        self._execute(op.FreezePool(shard, kept.at[0]))
        self.world.model.ask("HSET", shard_keys(shard).meta, "frozen", f"{lost.at[0]}-{lost.at[1]}")

    def _copied(self, shard: Shard) -> Copy:
        model, keys = self.world.model, shard_keys(shard)
        epoch, sequence = map(int, model.ask("HMGET", keys.meta, "epoch", "sequence"))
        notes = model.ask("HGETALL", keys.transfers)
        return Copy((epoch, sequence), dict(zip(notes[::2], notes[1::2], strict=True)), replica_of(model, shard))

    def _is_frozen(self, shard: Shard) -> bool:
        return self.world.model.ask("HGET", shard_keys(shard).meta, "frozen") is not None

    def _operates(self, pause: float) -> Plan[None]:
        for attempt in range(8):
            yield from perform(Sleep(pause + 0.01 * 2**attempt))
            for shard in self.directory.shards:
                yield from self._thaws(shard)

    def _thaws(self, shard: Shard) -> Plan[None]:
        """Thaw a frozen shard with the units that customers have of it at that moment."""
        plan = thaw_plan(op.ThawPool(shard, 0, 0))
        if not self._is_frozen(shard):
            return
        try:
            yield from scattered(self._informed(plan, shard), self.chance)
            self.counts["thaws"] += 1
        except (InvalidInput, PoolFrozen, PoolNotFrozen, StoreUnavailable):  # another thaw came in between
            self.counts["thaws that were not finished"] += 1

    def _informed(self, plan: Plan[Any], shard: Shard) -> Plan[None]:
        """Perform a thaw with the number of the moment in which it happens."""

        def informed(effect: Effect[Any]) -> Plan[Any]:
            if isinstance(effect, op.ThawPool):
                effect = replace(effect, sold=self.sold_of(shard))
            return (yield from perform(effect))

        return substituted(plan, informed)

    def sold_of(self, shard: Shard) -> int:
        """Return the units of a shard that customers have: an order's home is determined by its id."""
        return sum(units for name, units in self.ever.items() if home_of(name, SHARDS) == shard.number)

    # --- what must hold ---

    def check(self) -> None:
        """While no shard is frozen, every unit is in one place."""
        if not any(map(self._is_frozen, self.directory.shards)):
            super().check()

    def recover(self) -> None:
        """Let all come to rest, and thaw what is still frozen."""
        self.world.lost_replies = self.world.kills = 0.0
        for actor in self.world.actors:
            if isinstance(actor.outcome, BaseException):
                raise actor.outcome
        for _ in range(3):
            for shard in self.directory.shards:
                self.done(self._thaws(shard))
        assert not any(map(self._is_frozen, self.directory.shards))
        assert sum(self.ever.values()) <= STOCK, self.ever
        self.check()


def forgetful_sale(seed: int) -> Counter[str]:
    """Run one sale until every unit is sold; return what happened in it."""
    shop = ForgetfulShop(seed)
    shop.sell()
    shop.recover()
    shop.end()
    return shop.counts
