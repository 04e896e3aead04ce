"""A sale without an order database on a server that loses changes, and an operator who knows what customers have.

The judge keeps its own books: what was ever confirmed, and how many units the pool counts as sold since its last thaw.
"""

import random
import re
from collections import Counter
from dataclasses import replace
from typing import Any, Final

from segmented import protocol as op
from segmented.errors import InvalidInput, OrderUnknown, PoolFrozen, PoolNotFrozen, StoreUnavailable
from segmented.models import Granted, Order, Reserved, Settled, SoldOut, Thawed
from segmented.plans import Plan, perform, substituted
from segmented.protocol import Effect, Operation
from segmented.stock.audit import audit_plan
from segmented.stock.plans import expire_plan, grant_plan, reserve_plan
from segmented.stock.thawing import thaw_plan
from tests.support.sim.forgetful_world import NATURE, READS, ForgetfulWorld, Numbers, failing
from tests.support.sim.simulator import Actor, Sleep

SKU: Final = "poster"
SEGMENTS: Final = 3
STOCK: Final = 12
ORDERS: Final = 10
TRIES: Final = 9
TTL_MS: Final = 300
HOLD_MS: Final = 600
BEHIND_MAX: Final = 30.0
OVERTAKEN: Final = re.compile("which does not fit epoch|cancels orders: read its state")
WAYS: Final = ("grant", "grant", "reserve", "reserve", "cancel", "forget")


class UngatedSale:
    """One sale, from its opening until every unit is sold."""

    def __init__(self, seed: int, *, kills: float = 0.004, lost_replies: float = 0.01) -> None:
        self.world = ForgetfulWorld(seed, kills=kills, lost_replies=lost_replies)
        self.world.on_kill = self._killed
        self.chance = random.Random(seed)
        self.ever: dict[str, int] = {}
        """Every order that a server has ever confirmed, and its units: what the operator's own records say."""
        self.sold = 0
        """Units that the pool counts as sold."""
        self.is_frozen = self.has_lost = False
        """Whether a process that acted has seen a loss, and whether there is one that nobody may have seen."""
        self.unnoticed = 0
        """Orders that were answered between a loss and the moment that a process saw it."""
        self.stocked = STOCK
        """Units that the pool counts as ever stocked: more once the operator has found more sold than that."""
        self._replica = (0, STOCK, False, False)
        self._tokens: dict[str, int] = {}
        self._witnessed: dict[str, tuple[int, int, str]] = {}
        """Epoch, sequence number and digest of the latest change that a process has seen, as the ledger has it."""
        self._thawing: set[str] = set()
        self.world.server.watch = self._watched
        self.world.model.execute(op.OpenPool(SKU, STOCK, SEGMENTS, gated=False))
        self.world.server.replicate()

    @property
    def counts(self) -> Counter[str]:
        return self.world.counts

    # --- who takes part ---

    def sell(self) -> None:
        """Start everything that happens until the end."""
        for number in range(ORDERS):
            order = Order(f"o{number}", self.chance.randint(1, 3))
            way = self.chance.choice(WAYS)
            for delivery in range(self.chance.choice((1, 1, 2))):
                plan = self._sells(order, way, f"{order.order_id} {delivery}", self.chance.uniform(0, 0.1))
                self.world.start(f"{order.order_id} {delivery}", plan, process=f"shop {self.chance.randrange(3)}")
        for number in range(2):
            self.world.start(f"sweeper {number}", self._sweeps(self.chance.uniform(0.1, 0.3)))
            self.world.start(f"operator {number}", self._operates(f"operator {number}", self.chance.uniform(0, 0.05)))
        self.world.start(NATURE, failing(self.chance, self._replicate, self._fail_over))
        self.world.run()

    def _replicate(self) -> None:
        self.world.server.replicate()
        self._replica = self.sold, self.stocked, self.is_frozen, self.has_lost

    def _fail_over(self) -> None:
        is_lost = self.world.server.fail_over(behind=self.chance.choice((0.0, self.chance.uniform(0, BEHIND_MAX))))
        self.sold, self.stocked, self.is_frozen, self.has_lost = self._replica
        self.has_lost |= is_lost

    def _sells(self, order: Order, way: str, name: str, delay: float) -> Plan[object]:
        """Take an order to its end, as a caller would: again after a failure, later if the pool is frozen."""
        yield from perform(Sleep(delay))
        for attempt in range(TRIES):
            try:
                return (yield from self._sold(order, way, f"{name} {attempt}"))
            except PoolFrozen:
                self.counts["PoolFrozen"] += 1
            except OrderUnknown:  # the pool forgot it since it was taken
                self.counts["orders forgotten in hand"] += 1
            except StoreUnavailable:
                continue
            yield from perform(Sleep(0.01 * 2**attempt))
        return "gave up"

    def _sold(self, order: Order, way: str, holder_id: str) -> Plan[object]:
        answer: object
        if way == "grant":
            operation = op.Grant(SKU, order, holder_id, TTL_MS, HOLD_MS, keep_refusal=False)
            answer, _ = yield from grant_plan(operation, 5.0)
        else:
            answer = yield from reserve_plan(op.Reserve(SKU, order, HOLD_MS))
        if not isinstance(answer, Granted | Reserved) or way == "forget":
            return answer
        yield from perform(Sleep(0.005))
        if way == "cancel":
            return (yield from perform(op.Cancel(SKU, order.order_id)))
        return (yield from perform(op.Confirm(SKU, order.order_id)))

    def _sweeps(self, pause: float) -> Plan[None]:
        for _ in range(4):
            yield from perform(Sleep(pause))
            try:
                self.counts["expired"] += len((yield from expire_plan(SKU, 1_000)))
            except (PoolFrozen, StoreUnavailable):
                continue

    def _operates(self, name: str, pause: float) -> Plan[None]:
        """Thaw the pool whenever it is frozen, with the number of units that customers have."""
        for attempt in range(8):
            yield from perform(Sleep(pause + 0.01 * 2**attempt))
            try:
                state = yield from perform(op.ReadPool(SKU))
                if state.frozen is not None:
                    self._thawing.add(name)
                    yield from self._informed(thaw_plan(op.ThawPool(SKU, 0, 0)))
                    self._thawing.discard(name)
            except InvalidInput as error:  # another thaw, or a failover, came in between
                if not OVERTAKEN.search(str(error)):
                    raise
            except (PoolNotFrozen, StoreUnavailable):
                continue

    def _informed(self, plan: Plan[Thawed]) -> Plan[Thawed]:
        """Give a thaw the numbers of the moment in which it happens: all units that customers have are sold."""

        def informed(effect: Effect[Any]) -> Plan[Any]:
            if isinstance(effect, op.ThawPool):
                effect = replace(effect, sold=self._number(), stocked=max(STOCK, self._number()))
            return (yield from perform(effect))

        thawed = yield from substituted(plan, informed)
        self.counts["reserved orders cancelled by a thaw"] += thawed.cancelled_count
        return thawed

    def _number(self) -> int:
        """Return what the operator says: the units that customers have."""
        return sum(self.ever.values())

    def _killed(self, process: str) -> None:
        self.counts["crashes inside a thaw"] += process in self._thawing
        self._witnessed.pop(process, None)

    # --- what must hold ---

    def _watched(self, operation: Operation[Any], answer: object) -> None:
        pool, process = self.world.server.numbers(SKU), self.world.server.caller
        self.is_frozen |= pool.frozen is not None
        if isinstance(answer, Thawed):
            self._thawed(operation, answer)
        elif not isinstance(operation, (*READS, op.ThawPool)):
            self._check_witness(pool, process, operation)
            assert not self.is_frozen, f"{operation} was answered between a loss that was seen and the thaw"
            self.unnoticed += self.has_lost
        if isinstance(answer, Settled) and answer.state == "confirmed" and not answer.replay:
            self.ever[answer.order_id] = answer.quantity
            self.sold += answer.quantity
        self._note_witness(pool, process, answer)
        if isinstance(answer, Granted):
            highest = self._tokens.get(process, 0)
            assert answer.fencing_token > highest or answer.replay, (process, highest, answer)
            self._tokens[process] = max(highest, answer.fencing_token)
        assert pool.confirmed == self.sold, (operation, pool.confirmed, self.sold)
        if pool.frozen is not None:  # perhaps a thaw has cancelled some orders, and not given out their units yet
            return
        assert pool.available + pool.reserved + pool.confirmed == self.stocked, operation
        assert min(pool.available, pool.reserved, *pool.stock) >= 0, operation
        assert sum(pool.stock) == pool.available, operation

    def _check_witness(self, pool: Numbers, process: str, operation: Operation[Any]) -> None:
        """A process is not answered by a pool that lacks the latest change that it has seen."""
        epoch, sequence, digest = self._witnessed.get(process, (0, 0, ""))
        found = self.world.server.chain_at(SKU, epoch, sequence)
        assert epoch < pool.epoch or found == digest, f"{process} saw a change that is lost, and got {operation}"

    def _note_witness(self, pool: Numbers, process: str, answer: object) -> None:
        number = getattr(answer, "sequence", 0) if getattr(answer, "epoch", 0) else 0
        chain = self.world.server.chain_at(SKU, pool.epoch, number)
        if chain is not None and (pool.epoch, number) >= self._witnessed.get(process, (0, 0, ""))[:2]:
            self._witnessed[process] = pool.epoch, number, chain

    def _thawed(self, operation: Operation[Any], answer: Thawed) -> None:
        assert isinstance(operation, op.ThawPool)
        if answer.replay:
            return
        state = answer.state
        self.counts["thaws"] += 1
        self.sold, self.is_frozen, self.has_lost = operation.sold, False, False
        self.stocked = operation.stocked or STOCK
        assert (state.confirmed, state.available) == (operation.sold, self.stocked - operation.sold - state.reserved)
        records = self.world.server.records(SKU)
        assert state.reserved == sum(record.quantity for record in records if record.state == "reserved")

    # --- the end ---

    def end(self) -> None:
        """Let all come to rest, recover what was lost, and sell every unit that is left."""
        self.world.calm_down()
        self.world.clock.advance(2 * BEHIND_MAX)
        for actor in self.world.actors:
            if isinstance(actor.outcome, BaseException):
                raise actor.outcome
        if not self.unnoticed:
            assert sum(self.ever.values()) <= STOCK, self.ever
        state = self.world.model.execute(op.ReadPool(SKU))
        if self.has_lost or state.frozen is not None:
            self.world.model.execute(op.FreezePool(SKU, state.epoch))
            self._done(self._informed(thaw_plan(op.ThawPool(SKU, 0, 0))))
        self._done(expire_plan(SKU, 1_000))
        state = self.world.model.execute(op.ReadPool(SKU))
        assert (state.reserved, state.confirmed, state.frozen) == (0, self.sold, None)
        for number in range(state.available):
            sold = self._done(self._sold(Order(f"last {number}"), "grant", f"last {number}"))
            assert isinstance(sold, Settled), sold
        assert isinstance(self._done(self._sold(Order("none"), "grant", "none")), SoldOut)
        report = self._done(audit_plan(SKU))[0]
        assert report.is_clean, report
        assert report.state.confirmed == self.stocked

    def _done(self, plan: Plan[Any]) -> Any:  # noqa: ANN401  # of any plan
        actor: Actor = self.world.start(f"last {len(self.world.actors)}", plan)
        self.world.run()
        if isinstance(actor.outcome, BaseException):
            raise actor.outcome
        return actor.outcome


def ungated_sale(seed: int, **trouble: float) -> Counter[str]:
    """Run one sale; return what happened in it."""
    sale = UngatedSale(seed, **trouble)
    sale.sell()
    sale.end()
    return sale.counts
