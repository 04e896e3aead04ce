"""Submitted orders, interleaved from seeds: workers that die at any step, lost replies and messages, and sweeps."""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pytest

from segmented import protocol as op
from segmented.errors import OrderQueued, StoreUnavailable
from segmented.keys import shard_keys
from segmented.models import Order
from segmented.models.submitted import BegunOrder, Deciding, Queued, SweepSuperseded
from segmented.plans import Plan, perform
from segmented.stock.audit import audit_plan
from segmented.stock.outbox import (
    Noted,
    Outbox,
    SweepTerms,
    dead_plan,
    envelopes_of,
    submit_plan,
    sweep_operation,
    to_publish,
)
from segmented.stock.plans import expire_plan, settle_many_plan, take_plan
from segmented.stock.sold_out_mark import SoldOutMark
from segmented.testing import Simulation, Sleep
from tests.support.sim.seeds import each_seed

if TYPE_CHECKING:
    from collections.abc import Sequence

BOTH: list[Deciding] = ["at acceptance", "in the worker"]
SKU: Final = "ticket"
STOCK: Final = 30
TTL_MS: Final = 300
LONG_MS: Final = 600_000
TERMS: Final = SweepTerms(base=0.2, most=1.0, hold=600.0, begun_max=3)
ROUNDS_MAX: Final = 60


@dataclass(slots=True)
class Sale:
    """A world with a pool, a broker that loses messages, and what is known of the sale from outside."""

    world: Simulation
    decides: Deciding
    chance: random.Random
    hold_ms: int
    broker: deque[tuple[str, ...]] = field(default_factory=deque)
    wanted: list[Order] = field(default_factory=list)
    accepted: set[str] = field(default_factory=set)
    """Orders whose submitter was told so."""
    holders: int = 0

    def tell(self, envelope: Sequence[str], *, lost: float) -> None:
        if self.chance.random() >= lost:
            self.broker.append(tuple(envelope))

    # --- actors ---

    def submitter(self, wanted: list[Order]) -> Plan[None]:
        """Submit a few orders at a time, and again when the reply was lost, as a client would."""
        outbox = Outbox(decides=self.decides, publish_after=0.2)
        mark, noted = SoldOutMark(0.0, self.world.clock), Noted(self.world.clock)
        for first in range(0, len(wanted), 3):
            page = tuple(wanted[first : first + 3])
            operation = op.ReserveMany(SKU, page, self.hold_ms, publish_after_ms=outbox.publish_after_ms)
            while True:
                try:
                    answers = yield from submit_plan(mark, outbox, operation, noted=noted)
                except StoreUnavailable:
                    continue
                break
            told = [order_id for waiting in to_publish(answers).values() for order_id in waiting]
            self.accepted.update(told)
            self.accepted.update(answer.order_id for answer in answers if isinstance(answer, Queued))
            if told:
                self.tell(told, lost=0.3)
            yield from perform(Sleep(0.01))

    def worker(self) -> Plan[None]:
        """Take messages until there are none; one whose worker lost a reply may come again."""
        while self.broker:
            message = self.broker.popleft()
            self.holders += 1
            try:
                yield from self.envelope(message, f"w{self.holders}")
            except StoreUnavailable:
                self.tell(message, lost=0.5)

    def envelope(self, ids: tuple[str, ...], holder_id: str) -> Plan[None]:
        """What `take_envelope` does, with a step that takes a while and may fail."""
        has_step = self.chance.random() < 0.5
        if not has_step:
            answers = yield from settle_many_plan(op.SettleMany(SKU, "confirmed", ids, decided=False))
            ids = tuple(one for one, answer in zip(ids, answers, strict=True) if isinstance(answer, OrderQueued))
            if not ids:
                return
        operation = op.TakeOrders(SKU, ids, holder_id, TTL_MS, self.hold_ms, TTL_MS, TERMS.begun_max)
        taken, _ = yield from take_plan(operation, shard_keys(SKU).freed, 0.5)
        begun = [one.order.order_id for one in taken.orders if isinstance(one, BegunOrder)] if taken else []
        if not begun:
            return
        if has_step:
            yield from perform(Sleep(self.chance.choice([0.01, 0.2, 0.5])))  # the last one oversleeps
            if self.chance.random() < 0.5:
                yield from perform(op.RenewWork(SKU, tuple(begun), holder_id, TTL_MS, self.hold_ms, TTL_MS))
            if self.chance.random() < 0.3:
                failed = begun.pop()
                counts = self.chance.random() < 0.5
                yield from perform(op.PutOff(SKU, (failed,), holder_id, 100, counts, TERMS.begun_max, "it rained"))
        if begun:
            yield from settle_many_plan(
                op.SettleMany(SKU, "confirmed", tuple(begun), decided=False, holder_id=holder_id)
            )

    def sweeper(self, fencing_token: int | None) -> Plan[None]:
        """Sweep until nothing is due; what was published is lost if the sweep dies behind the script."""
        while True:
            try:
                answer = yield from perform(sweep_operation(SKU, TERMS, 4, fencing_token))
            except StoreUnavailable:
                continue
            if isinstance(answer, SweepSuperseded):
                return
            for envelope in envelopes_of(answer.due):
                self.tell(envelope, lost=0.1)
            if not answer.is_more_due:
                return

    def replayer(self) -> Plan[None]:
        dead = yield from dead_plan(SKU)
        if dead:
            yield from perform(op.ReplayDead(SKU, tuple(one.order_id for one in dead)))

    # --- the whole ---

    def check(self) -> None:
        """Nothing is stranded, at no moment: who is undecided is in the outbox or dead, who is decided is not."""
        state = self.world.model.execute(op.ReadPool(SKU))
        assert state.available + state.reserved + state.confirmed == STOCK
        assert min(state.available, *state.stock) >= 0
        for found in self.world.model.execute(op.ReadSubmitted(SKU, tuple(order.order_id for order in self.wanted))):
            assert found.is_in_outbox == (found.state in {"queued", "reserved"}), found
            assert found.state != "unknown" or found.order_id not in self.accepted

    def round(self, number: int, *, workers: int) -> None:
        """Let some time pass, sweep, and set workers to it."""
        self.world.clock.advance(self.chance.choice([0.1, 0.3, 1.1]))
        self.world.start(f"sweep {number}", self.sweeper(number))
        self.world.start(f"other sweep {number}", self.sweeper(self.chance.choice([None, number - 1])))
        for worker in range(workers):
            self.world.start(f"worker {number}.{worker}", self.worker())
        self.world.run(check=self.check)

    def is_finished(self) -> bool:
        found = self.world.model.execute(op.ReadOutbox(SKU))
        return not (found.waiting or found.dead)


def sale_of(seed: int, decides: Deciding, *, hold_ms: int = LONG_MS) -> Sale:
    """Run a sale to its end: first with deaths and losses, then with what heals them."""
    chance = random.Random(seed)
    world = Simulation(seed, lost_replies=0.05, kills=0.01)
    world.model.execute(op.OpenPool(SKU, STOCK, 1 + seed % 4, gated=False))
    sale = Sale(world, decides, chance, hold_ms)
    sale.wanted = [Order(f"o{index:02}", chance.randint(1, 3)) for index in range(21)]
    for first in range(0, 21, 7):
        world.start(f"submitter {first}", sale.submitter(sale.wanted[first : first + 7]))
    world.start("second delivery", sale.submitter(sale.wanted[:7]))
    for worker in range(3):
        world.start(f"worker {worker}", sale.worker())
    world.run(check=sale.check)
    for number in range(1, 9):
        sale.round(number, workers=3)
    world.kills = world.lost_replies = 0.0
    for number in range(9, ROUNDS_MAX):
        if sale.is_finished():
            break
        world.start(f"replay {number}", sale.replayer())
        if hold_ms < LONG_MS:
            world.start(f"expire {number}", expire_plan(SKU, 1_000))
        sale.round(number, workers=2)
    assert sale.is_finished()
    return sale


def check_decided_once(sale: Sale, fates: set[str]) -> dict[str, str]:
    """Compare the orders with the ledger, which has each decision once, and with the units."""
    actor = sale.world.start("audit", audit_plan(SKU))
    sale.world.run()
    assert isinstance(actor.outcome, tuple)
    report = actor.outcome[0]
    assert report.is_clean, report.drift
    assert (report.state.reserved, report.oversold, report.refused_wrongly) == (0, 0, 0)
    entries = sale.world.model.execute(op.ReadLedger(SKU, 0, 10_000))
    decisions = Counter(entry.order_id for entry in entries if entry.kind in {"confirmed", "refused", "expired"})
    ids = tuple(order.order_id for order in sale.wanted)
    states = {one.order_id: one.state for one in sale.world.model.execute(op.ReadSubmitted(SKU, ids))}
    decided = {order_id for order_id, state in states.items() if state in fates}
    assert sale.accepted <= decided
    assert decisions == Counter(decided)
    assert set(states.values()) <= fates | {"unknown"}
    sold = sum(order.quantity for order in sale.wanted if states[order.order_id] == "confirmed")
    assert report.state.confirmed == sold == STOCK - report.state.available
    return {order_id: str(state) for order_id, state in states.items()}


@pytest.mark.parametrize("decides", BOTH)
@each_seed(2, meets=["kills", "losses", "confirmed"])
def test_every_accepted_order_is_decided_once_whoever_dies_and_whatever_is_lost(
    seed: int, decides: Deciding
) -> Counter[str]:
    sale = sale_of(seed, decides)
    met = Counter(check_decided_once(sale, {"confirmed", "refused"}).values())
    if decides == "at acceptance":
        assert "refused" not in met
    return met


@pytest.mark.parametrize("decides", BOTH)
@each_seed(2, meets=["turns", "kills", "losses"])
def test_where_holds_lapse_meanwhile_an_order_is_sold_or_given_back(seed: int, decides: Deciding) -> None:
    sale = sale_of(seed, decides, hold_ms=400)
    check_decided_once(sale, {"confirmed", "refused", "expired"})
