"""A gated sale on a server that loses changes: sellers, sweepers, rebuilders and failovers, and what must hold.

The production functions run unchanged, each in a greenlet: every call of its store or of the database is a step, which
waits for the scheduler's answer. The database is a model in memory, written from the pages and not from the gate's
code: a row per segment and one per order. An order is confirmed or void, once. A confirm needs the row's epoch, and a
token that is not below the row's.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import Any, Final, Literal, TypeVar, cast

from greenlet import GreenletExit, getcurrent, greenlet

from segmented import protocol as op
from segmented.clock import Clock
from segmented.errors import (
    ChangeDiverged,
    DatabaseUnavailable,
    GrantSuperseded,
    InvalidInput,
    OrderUnknown,
    PoolDiverged,
    PoolFrozen,
    PoolMissing,
    PoolNotFrozen,
    PoolUnverified,
    SegmentedError,
    StoreUnavailable,
)
from segmented.models import Busy, Decided, Granted, Order, Reserved, Settled, SoldOut, Thawed
from segmented.orders import Claim, Gate, answers, rebuild
from segmented.orders.opening import restock_gated, withdraw_gated
from segmented.orders.sale import cancel_order, expire_voided, finish_reserved, take_order
from segmented.orders.stocking import Change
from segmented.plans import Plan
from segmented.plans.drivers import one_by_one
from segmented.protocol import Effect, Operation
from segmented.stock import AuditReport, Grant, Pool
from segmented.stores.wakeups import ThreadWakeups
from tests.support.sim.forgetful_world import NATURE, Do, ForgetfulWorld, failing
from tests.support.sim.simulator import Killed, Sleep

AnswerT = TypeVar("AnswerT")


class SteppedStore:
    """The store of one process: all its functions share it. It never waits, so callers give a timeout of 0."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.wakeups = ThreadWakeups(clock)
        self.is_dead = False

    def ask(self, effect: Effect[AnswerT]) -> AnswerT:
        """Let the scheduler perform an effect. A process that died does nothing any more, not even clean up.

        A keeper's thread is no step of the schedule: an answer that ends what it watches lets it end.
        """
        scheduler = getcurrent().parent
        if scheduler is None:
            nowhere = "a keeper's thread"
            raise PoolMissing(nowhere)
        if self.is_dead:
            raise GreenletExit
        return scheduler.switch(effect)  # type: ignore[no-any-return]  # what the scheduler hands back

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:  # noqa: ARG002  # as above
        return self.ask(operation)

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        return one_by_one(self, operations, deadline)

    def close(self) -> None:
        """There is nothing to close."""


def stepped(store: SteppedStore, function: Callable[[], AnswerT]) -> Plan[AnswerT]:
    """Run a function that uses `store`, as a plan."""
    running = greenlet(function)
    found: Any = running.switch()
    while not running.dead:
        try:
            reply = yield found
        except GeneratorExit:
            store.is_dead = True
            running.throw(GreenletExit)
            raise
        except Exception as error:  # noqa: BLE001  # the function handles it
            found = running.throw(error)
        else:
            found = running.switch(reply)
    return found  # type: ignore[no-any-return]  # what the function returned


EPOCH_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Row:
    """One segment."""

    quota: int
    epoch: int = 1
    sold: int = 0
    fence: int = 0
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class StoredOrder:
    """One order."""

    state: Literal["confirmed", "void"]
    quantity: int
    segment: int | None = None
    fence: int | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class StoredChange:
    """One restock or withdrawal."""

    kind: Literal["restocked", "withdrawn"]
    units: int
    state: Literal["begun", "done", "undone"]
    epoch: int


@dataclass(slots=True)
class GateModel:
    """The database of one pool. Each method is one transaction."""

    rows: list[Row]
    stored: dict[str, StoredOrder] = field(default_factory=dict)
    opened: int = 1
    """Epoch in which the pool was last known to be open."""
    superseded: int = 0
    overtaken: int = 0
    """How often the epoch changed while a process was held up between the database and the pool."""
    changes: dict[str, StoredChange] = field(default_factory=dict)

    @property
    def quota(self) -> int:
        return sum(row.quota for row in self.rows)

    @property
    def sold(self) -> int:
        return sum(row.sold for row in self.rows)

    def confirm_claim(self, claim: Claim) -> answers.ConfirmAnswer:
        order_id, quantity, segment, fence = claim.order.order_id, claim.order.quantity, claim.segment, claim.fence
        known = self.stored.get(order_id)
        if known is not None:
            return answers.Voided(replay=True) if known.state == "void" else answers.Confirmed(replay=True)
        row = self.rows[segment]
        if row.epoch != claim.epoch:
            return answers.EpochChanged(row.epoch)
        if fence is not None and fence < row.fence:
            self.superseded += 1
            return answers.Superseded(row.fence)
        if self.quota - self.sold < quantity:
            return answers.SoldOut(self.quota, self.sold)
        for giver in self.rows:  # a full segment gets quota from the others
            moved = max(0, min(giver.quota - giver.sold, quantity - (row.quota - row.sold)))
            if giver is not row:
                giver.quota, row.quota = giver.quota - moved, row.quota + moved
        row.sold += quantity
        row.fence, row.sequence = max(row.fence, fence or 0), max(row.sequence, claim.sequence)
        self.stored[order_id] = StoredOrder("confirmed", quantity, segment, fence, claim.epoch)
        return answers.Confirmed(replay=False)

    def void(self, *, order_id: str, quantity: int, **_: object) -> answers.VoidAnswer:
        known = self.stored.get(order_id)
        if known is not None:
            return answers.Voided(replay=True) if known.state == "void" else answers.AlreadyConfirmed()
        self.stored[order_id] = StoredOrder("void", quantity)
        return answers.Voided(replay=False)

    def void_many(self, _: str, orders: Iterable[Order]) -> bool:
        rows = {order.order_id: StoredOrder("void", order.quantity) for order in orders}
        if self.stored.keys() & rows.keys():
            return False
        self.stored.update(rows)
        return True

    def raise_epoch(self, *_: object, epoch: int, opened: int | None, **__: object) -> answers.SegmentTotals | None:
        if any(row.epoch > epoch for row in self.rows) or self.opened != (opened or 0):
            return None
        if self.rows[0].epoch < epoch:  # a pool of the later epoch includes restocks, which are in the quota
            for change_id, one in self.changes.items():
                if (one.kind, one.state) == ("restocked", "begun"):
                    self.changes[change_id] = replace(one, state="done")
        for row in self.rows:
            row.sequence = row.sequence if row.epoch == epoch else 0
            row.epoch = epoch
        return self.totals()

    def begin(self, change: Change, _: int) -> answers.ChangeAnswer:
        """Begin a restock, whose units the quota has from now on, or a withdrawal."""
        if self.rows[0].epoch != change.epoch:
            return answers.EpochChanged(self.rows[0].epoch)
        known = self.changes.get(change.change_id)
        if known is not None:
            return answers.Stored(replay=True, state=known.state, epoch=known.epoch)
        assert change.kind != "opened"
        self.changes[change.change_id] = StoredChange(change.kind, change.units, "begun", change.epoch)
        self.rows[0].quota += change.units if change.kind == "restocked" else 0
        return answers.Stored(replay=False, state="begun", epoch=change.epoch)

    def undo(self, change: Change) -> answers.ChangeAnswer:
        """Undo a withdrawal whose units are sold."""
        if self.rows[0].epoch != change.epoch:
            return answers.EpochChanged(self.rows[0].epoch)
        known = self.changes[change.change_id]
        assert (known.kind, known.state) == ("withdrawn", "begun")
        self.changes[change.change_id] = replace(known, state="undone")
        return answers.Stored(replay=False, state="undone", epoch=change.epoch)

    def finish(self, change: Change) -> answers.ChangeAnswer | answers.TooFewUnsold:
        """End a change that the pool has made; the quota of a withdrawal falls only now."""
        if self.rows[0].epoch != change.epoch:
            return answers.EpochChanged(self.rows[0].epoch)
        known = self.changes[change.change_id]
        if known.state != "begun":
            return answers.Stored(replay=True, state=known.state, epoch=known.epoch)
        left = change.units if change.kind == "withdrawn" else 0
        if self.quota - self.sold < left:
            return answers.TooFewUnsold(self.quota, self.sold)
        for row in self.rows:
            taken = min(left, row.quota - row.sold)
            row.quota, left = row.quota - taken, left - taken
        self.changes[change.change_id] = replace(known, state="done", epoch=change.epoch)
        return answers.Stored(replay=False, state="done", epoch=change.epoch)

    def unfinished_changes(self, _: str) -> tuple[answers.ChangeRow, ...]:
        return tuple(
            answers.ChangeRow(change_id, one.kind, one.units, one.state, one.epoch, EPOCH_START)
            for change_id, one in self.changes.items()
            if one.state == "begun"
        )

    def note_opened(self, _: str, *, epoch: int) -> answers.ChangeAnswer:
        if self.rows[0].epoch != epoch:
            return answers.EpochChanged(self.rows[0].epoch)
        is_known, self.opened = self.opened >= epoch, max(self.opened, epoch)
        return answers.Stored(replay=is_known, state="done", epoch=epoch)

    def opened_epoch(self, _: str) -> int:
        return self.opened

    def note_terms(self, _: object) -> None:
        """Keep nothing: only a reopen reads a sale's terms."""

    def is_decided(self, _: str, order_id: str) -> bool:
        return order_id in self.stored

    def totals(self, *_: object) -> answers.SegmentTotals:
        rows = tuple(
            answers.SegmentRow(number, one.quota, one.sold, one.fence, one.epoch, one.sequence)
            for number, one in enumerate(self.rows)
        )
        return answers.SegmentTotals(self.quota, self.sold, rows)

    def orders(self, sku: str, order_ids: Iterable[str]) -> dict[str, answers.OrderRow]:
        found = {order_id: self.stored[order_id] for order_id in order_ids if order_id in self.stored}
        return {
            order_id: answers.OrderRow(
                sku, order_id, one.state, one.quantity, one.segment, one.fence, one.epoch, None, EPOCH_START
            )
            for order_id, one in found.items()
        }


class SteppedGate:
    """The database as one process sees it: the part of `Gate` and `stocking` that orders need. A call is a step."""

    WRITES: Final = ("confirm", "begin")

    def __init__(self, store: SteppedStore, model: GateModel) -> None:
        self._store, self._model = store, model
        self.held_up: Callable[[], float] = lambda: 0.0
        """Seconds for which the process is held up after a write to the database."""
        self.stocking = self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        act = getattr(self._model, name)

        def call(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # those of the model's methods
            found = self._store.ask(Do(partial(act, *arguments, **options)))
            if name in self.WRITES:
                self._wait()
            return found

        return call

    def _wait(self) -> None:
        """Be held up, so that failovers and rebuilds come between the database and the pool."""
        before, seconds = self._model.rows[0].epoch, self.held_up()
        if seconds:
            self._store.ask(Sleep(seconds))
            self._model.overtaken += self._model.rows[0].epoch != before


SKU: Final = "mug"
SEGMENTS: Final = 3
QUOTA: Final = 12
ORDERS: Final = 9
TRIES: Final = 9
TTL: Final = 0.3
HOLD: Final = 0.6
BEHIND_MAX: Final = 30.0
HELD_UP_MAX: Final = 0.2
"""Seconds for which a process may be held up between the database and the pool."""
CHANGES: Final = {"restock 1": 3, "withdraw 1": 2}
"""Restocks and withdrawals, with their units."""
WAYS: Final = ("take", "take", "body", "body", "body", "finish", "cancel", "forget")
UNSURE: Final = (StoreUnavailable, DatabaseUnavailable)


class Process:
    """One process: its store, its pool and its gate."""

    def __init__(self, name: str, world: ForgetfulWorld, model: GateModel) -> None:
        self.name = name
        self.store = SteppedStore(world.clock)
        self.pool = Pool(self.store, SKU, ttl=TTL, hold=HOLD)
        self.stepped = SteppedGate(self.store, model)
        self.gate = cast("Gate", self.stepped)

    def sleep(self, seconds: float) -> None:
        self.store.ask(Sleep(seconds))


class GatedSale:
    """One sale, from its opening until every unit is sold."""

    def __init__(self, seed: int, *, kills: float = 0.004, lost_replies: float = 0.01, unsure: float = 0.01) -> None:
        self.world = ForgetfulWorld(seed, kills=kills, lost_replies=lost_replies)
        self.world.unsure = unsure
        self.world.on_kill = self._killed
        self.chance = random.Random(seed)
        self.gate = GateModel([Row(QUOTA // SEGMENTS) for _ in range(SEGMENTS)])
        self.bodies: dict[str, int] = {}
        """Delivery of an order -> how often its body ran since its caller asked."""
        self.has_lost = False
        """Whether changes, or a freeze, were lost since the pool was thawed last.

        A rebuild whose freeze is lost, and which dies next, leaves the database an epoch ahead of a pool that sells:
        the first confirm freezes it.
        """
        self._fates: dict[str, str] = {}
        self._tokens: dict[str, int] = {}
        self._rebuilding: dict[str, str] = {}
        self.world.server.watch = self._watched
        self.world.model.execute(op.OpenPool(SKU, QUOTA, SEGMENTS, gated=True))
        self.world.server.replicate()

    @property
    def counts(self) -> Counter[str]:
        return self.world.counts

    # --- who takes part ---

    def sell(self) -> None:
        """Start everything that happens until the end."""
        shops = [Process(f"shop {number}", self.world, self.gate) for number in range(3)]
        for number in range(ORDERS):
            order = Order(f"o{number}", self.chance.randint(1, 3))
            for delivery in range(self.chance.choice((1, 1, 2))):
                self._start(self.chance.choice(shops), f"{order.order_id} {delivery}", partial(self._sells, order))
        for number in range(2):
            self._start(Process(f"sweeper {number}", self.world, self.gate), f"sweeper {number}", self._sweeps)
        for change_id in CHANGES:
            self._start(Process(f"stock {change_id}", self.world, self.gate), change_id, self._changes)
        for number in range(3):
            self._start(Process(f"rebuilder {number}", self.world, self.gate), f"rebuilder {number}", self._rebuilds)
        self.world.start(NATURE, failing(self.chance, self.world.server.replicate, self._fail_over))
        self.world.run(check=self.check)

    def _start(self, process: Process, name: str, act: Callable[[Process, str, float], object]) -> None:
        delay = self.chance.uniform(0, 0.1)
        process.stepped.held_up = lambda: self.chance.choice((0.0, 0.0, 0.0, 0.0, 0.05, HELD_UP_MAX))
        self.world.start(name, stepped(process.store, partial(act, process, name, delay)), process=process.name)

    def _fail_over(self) -> None:
        behind = self.chance.choice((0.0, self.chance.uniform(0, BEHIND_MAX)))
        was_frozen = self.world.server.is_frozen(SKU)
        self.has_lost |= self.world.server.fail_over(behind=behind)
        self.has_lost |= was_frozen and not self.world.server.is_frozen(SKU)

    def _sells(self, order: Order, process: Process, name: str, delay: float) -> object:
        """Take an order to its end, as a caller would: again after a failure, later if the pool is frozen."""
        process.sleep(delay)
        way = WAYS[int(order.order_id[1:]) % len(WAYS)]
        for attempt in range(TRIES):
            self.bodies[name] = 0
            try:
                answer = self._sold(order, process, name, way)
            except GrantSuperseded:
                self.counts["bodies whose grant was superseded"] += 1
            except (PoolFrozen, PoolDiverged, PoolUnverified, OrderUnknown) as error:
                self.counts[type(error).__name__] += 1
            except UNSURE:
                continue
            else:
                if not isinstance(answer, Busy):
                    self._check_answer(order, answer, has_asked=way not in {"finish", "forget"})
                    return answer
            process.sleep(0.01 * 2**attempt)
        return "gave up"

    def _sold(self, order: Order, process: Process, name: str, way: str) -> object:
        pool, gate = process.pool, process.gate

        def body(grant: Grant) -> None:
            self.bodies[name] += 1
            assert self.bodies[name] == 1, f"the body of {name} ran again unasked"
            assert grant.order_id == order.order_id
            self.counts["bodies of orders that are sold"] += self._is_sold(order)
            assert not self._is_sold_before(order, grant.epoch), f"the body of {name} ran, and an earlier epoch sold it"
            process.sleep(0.002)

        match way:
            case "take":
                return take_order(pool, gate, order, timeout=0)
            case "body":
                return take_order(pool, gate, order, timeout=0, body=body)
        reserved = pool.reserve(order)
        if not isinstance(reserved, Reserved) or way == "forget":
            return reserved
        process.sleep(0.005)
        if way == "cancel":
            return cancel_order(pool, gate, order)
        return finish_reserved(pool, gate, order, reserved)

    def _sweeps(self, process: Process, name: str, delay: float) -> None:  # noqa: ARG002  # as for the others
        for _ in range(4):
            process.sleep(delay + 0.2)
            try:
                self.counts["expired"] += len(expire_voided(process.pool, process.gate))
            except (PoolFrozen, OrderUnknown, *UNSURE):
                continue

    def _changes(self, process: Process, name: str, delay: float) -> object:
        """Restock or withdraw once, as an operator would: again after a failure, later if the pool is frozen."""
        process.sleep(delay)
        for attempt in range(TRIES):
            try:
                return self._changed(process, name)
            except (PoolFrozen, PoolUnverified, ChangeDiverged) as error:
                self.counts[type(error).__name__] += 1
            except UNSURE:
                continue
            process.sleep(0.01 * 2**attempt)
        return "gave up"

    def _changed(self, process: Process, change_id: str) -> object:
        if change_id.startswith("restock"):
            return restock_gated(process.pool, process.gate, CHANGES[change_id], restock_id=change_id)
        return withdraw_gated(process.pool, process.gate, CHANGES[change_id], withdraw_id=change_id)

    def _rebuilds(self, process: Process, name: str, delay: float) -> None:
        for attempt in range(8):
            process.sleep(delay + 0.005 * 2**attempt)
            try:
                if process.pool.state().frozen is not None:
                    self._rebuilding[process.name] = name
                    rebuild(process.pool, process.gate)
                    self.counts["rebuilds"] += 1
            except (PoolNotFrozen, InvalidInput) as error:
                if "are more than" in str(error):
                    raise
                self.counts["rebuilds that came too late"] += 1
            except UNSURE:
                continue
            finally:
                if not process.store.is_dead:
                    self._rebuilding.pop(process.name, None)

    def _killed(self, process: str) -> None:
        self.counts["crashes inside a rebuild"] += process in self._rebuilding

    # --- what must hold ---

    def check(self) -> None:
        """After every step: the database never sells more than its quota, and no order's fate changes."""
        gate = self.gate
        assert all(0 <= row.sold <= row.quota for row in gate.rows)
        assert gate.quota == QUOTA + sum(
            one.units if one.kind == "restocked" else -one.units * (one.state == "done")
            for one in gate.changes.values()
        )
        if len(self._fates) != len(gate.stored):
            assert sum(one.quantity for one in gate.stored.values() if one.state == "confirmed") == gate.sold
        for order_id, one in gate.stored.items():
            assert self._fates.setdefault(order_id, one.state) == one.state, order_id

    def _watched(self, operation: Operation[Any], answer: object) -> None:
        pool, process = self.world.server.numbers(SKU), self.world.server.caller
        if pool.frozen is None:  # a rebuild that has not ended may have ended orders without their units
            assert pool.available + pool.reserved + pool.confirmed == pool.stocked, operation
            if pool.epoch == self.gate.rows[0].epoch and not self.has_lost:  # a withdrawal may be lost
                assert pool.stocked <= self.gate.quota, operation
        assert min(pool.available, pool.reserved, pool.confirmed, *pool.stock) >= 0, operation
        assert sum(pool.stock) == pool.available, operation
        if isinstance(answer, Granted):
            highest = self._tokens.get(process, 0)
            assert (
                answer.fencing_token > highest
                or (answer.replay and answer.fencing_token == highest)
                or (
                    answer.replay and operation.holder_id == answer.holder_id  # type: ignore[attr-defined]  # of a grant
                )
            ), f"{process} had token {highest} and got {answer.fencing_token}"
            self._tokens[process] = max(highest, answer.fencing_token)
        if isinstance(answer, Thawed) and not answer.replay:
            self.has_lost = False
            self.counts["thaws"] += 1
            assert answer.state.confirmed == self.gate.sold, f"{self.gate.sold} sold, not {answer.state.confirmed}"

    def _check_answer(self, order: Order, answer: object, *, has_asked: bool) -> None:
        """Check the answer of a caller against the database; a repeated `reserve` is answered by the pool alone."""
        if isinstance(answer, Settled | Decided):
            kept = self.gate.stored.get(order.order_id)
            is_right = kept is not None and (kept.state == "confirmed") == (answer.state == "confirmed")
            assert is_right or not has_asked, (answer, kept)
            self.counts["answers of a pool that the database contradicts"] += not is_right
        if isinstance(answer, SoldOut):  # a repeat, by a process that does not know that the pool forgot its order
            self.counts["refusals of orders that are sold"] += self._is_sold(order)
            assert not (has_asked and self._is_sold_before(order, answer.epoch)), answer

    def _is_sold_before(self, order: Order, epoch: int) -> bool:
        """Return whether an epoch before this one sold the order."""
        return self._is_sold(order) and (self.gate.stored[order.order_id].epoch or 0) < epoch

    def _is_sold(self, order: Order) -> bool:
        return order.order_id in self.gate.stored and self.gate.stored[order.order_id].state == "confirmed"

    # --- the end ---

    def end(self) -> None:
        """Let all come to rest, recover what was lost, and sell every unit that is left."""
        self.world.calm_down()
        self.world.clock.advance(2 * BEHIND_MAX)
        self.counts["superseded"] = self.gate.superseded
        self.counts["steps that a rebuild overtook"] = self.gate.overtaken
        last = Process("last", self.world, self.gate)
        state = self.world.model.execute(op.ReadPool(SKU))
        is_behind = state.epoch < self.gate.rows[0].epoch  # one rebuild opened the pool, and a later one died
        is_selling = state.frozen is None and self.world.server.numbers(SKU).server == self.world.server.name
        assert not (is_behind and is_selling and not self.has_lost), "it sells in an epoch that the database has left"
        self.counts["pools that the database has left behind"] += is_behind and state.frozen is None
        if self.has_lost or is_behind or state.frozen is not None:
            self.world.model.execute(op.FreezePool(SKU, state.epoch))
            self._run(last, lambda: rebuild(last.pool, last.gate))
        for change_id in CHANGES:
            self._run(last, partial(self._changed, last, change_id))
        self._run(last, lambda: expire_voided(last.pool, last.gate))
        state = self.world.model.execute(op.ReadPool(SKU))
        assert (state.reserved, state.confirmed, state.frozen) == (0, self.gate.sold, None)
        assert state.available == self.gate.quota - self.gate.sold
        for number in range(state.available):
            sold = self._run(last, partial(take_order, last.pool, last.gate, Order(f"last {number}"), timeout=0))
            assert isinstance(sold, Settled), sold
            assert sold.state == "confirmed"
        assert isinstance(self._run(last, lambda: take_order(last.pool, last.gate, Order("none"), timeout=0)), SoldOut)
        report = cast("AuditReport", self._run(last, last.pool.audit))
        assert report.is_clean, report
        assert (report.state.confirmed, self.gate.sold) == (self.gate.quota, self.gate.quota)

    def _run(self, process: Process, act: Callable[[], object]) -> object:
        actor = self.world.start(f"last {len(self.world.actors)}", stepped(process.store, act), process=process.name)
        self.world.run(check=self.check)
        if isinstance(actor.outcome, BaseException):
            raise actor.outcome
        assert not isinstance(actor.outcome, Killed)
        return actor.outcome

    def outcomes(self) -> None:
        """Raise what ended an actor that should not have ended so."""
        for actor in self.world.actors:
            if isinstance(actor.outcome, BaseException):
                raise actor.outcome


def gated_sale(seed: int, **trouble: float) -> Counter[str]:
    """Run one sale; return what happened in it."""
    sale = GatedSale(seed, **trouble)
    sale.sell()
    sale.outcomes()
    sale.end()
    return sale.counts
