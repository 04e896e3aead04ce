"""Submitted orders in the simulator."""

import random
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from segmented import protocol as op
from segmented.errors import OrderQueued, SegmentedError, StoreUnavailable
from segmented.keys import shard_keys
from segmented.models import Order, Reserved, SoldOut
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
from segmented.stock.sharded.plans import ShardedPlans
from segmented.stock.sold_out_mark import SoldOutMark
from tests.support.pools.carting import ending_before
from tests.support.sim.seeds import each_seed
from tests.support.sim.sharded_shop import SKU, TRIES, Refused, Shop, order_of
from tests.support.sim.simulator import Simulation, Sleep, scattered

BATCHES: Final = 12
AFTER_MS: Final = 100
LONG_MS: Final = 600_000
"""A hold is pushed out by the sweep, so it must outlive every pause of that."""
ROUNDS: Final = 60


def submission(*orders: Order) -> op.ReserveMany:
    return op.ReserveMany(SKU, orders, LONG_MS, publish_after_ms=AFTER_MS)


def check_places(shop: Shop, ids: tuple[str, ...]) -> dict[str, str]:
    """Nobody's units are held without a place in the outbox, and nothing lapses; returns the states."""
    states = {}
    for shard in shop.directory.shards:
        for one in shop.world.model.execute(op.ReadSubmitted(shard, ids)):
            assert one.is_in_outbox == (one.state == "reserved"), one
            if one.state != "unknown":
                assert one.order_id not in states
                states[one.order_id] = str(one.state)
    assert "expired" not in states.values()
    return states


def submitter(shop: Shop, plans: ShardedPlans, orders: tuple[Order, ...]) -> Plan[object]:
    """Submit until every order has an answer, and give some back."""
    gives_back = [order for order in orders if shop.chance.random() < 0.2]
    for _ in range(TRIES):
        began_at = shop.world.clock.now()
        try:
            found = yield from scattered(plans.submit(submission(*orders)), shop.chance, shop.trouble)
        except StoreUnavailable:
            continue
        ended_at = shop.world.clock.now()
        shop.refusals += [
            Refused(one[1], began_at, ended_at)
            for one in found
            if not isinstance(one, SegmentedError) and isinstance(one[1], SoldOut)
        ]
        orders = tuple(order for order, one in zip(orders, found, strict=True) if isinstance(one, StoreUnavailable))
        if not orders:
            break
    for order in gives_back:
        with suppress(SegmentedError):  # it was refused, or the reply is lost
            yield from scattered(plans.cancel(op.Cancel(SKU, order.order_id), None), shop.chance)
    return "done"


def worker(shop: Shop, rounds: int) -> Plan[None]:
    """Confirm what the sweep of a shard names, whatever messages there were."""
    for _ in range(rounds):
        for shard in shop.directory.shards:
            with suppress(StoreUnavailable):
                found: Any = yield from perform(op.SweepOutbox(shard, 3, None, AFTER_MS, AFTER_MS, LONG_MS, 5))
                if found.due:
                    yield from perform(op.SettleMany(shard, "confirmed", tuple(order_id for order_id, _ in found.due)))
        yield from perform(Sleep(0.05))


def sold(seed: int, *, kills: float, lost_replies: float) -> Shop:
    shop = Shop(seed, 40, kills=kills, lost_replies=lost_replies)
    orders = [Order(f"o{index}", shop.chance.randint(1, 5)) for index in range(2 * BATCHES)]
    shop.chance.shuffle(orders)
    ids = tuple(order.order_id for order in orders)
    for number in range(BATCHES):
        two = tuple(orders[2 * number : 2 * number + 2])
        shop.world.start(f"s{number}", submitter(shop, shop.plans(), two), process=f"p{number}")
    for number in range(2):
        shop.world.start(f"w{number}", worker(shop, ROUNDS // 4), process=f"w{number}")

    def check() -> None:
        shop.check()
        check_places(shop, ids)

    shop.world.run(check=check, steps_max=400_000)
    shop.world.kills = shop.world.lost_replies = 0.0
    shop.done(worker(shop, ROUNDS))
    assert set(check_places(shop, ids).values()) <= {"confirmed", "cancelled"}
    return shop


@each_seed(1, meets=["turns"])
def test_everybody_s_orders_are_sold_or_refused_rightly_and_no_unit_is_lost(seed: int) -> None:
    shop = sold(seed, kills=0.0, lost_replies=0.0)
    assert all(actor.outcome == "done" for actor in shop.world.actors if actor.name.startswith("s"))
    shop.check_refusals()
    shop.end()


@each_seed(1, meets=["turns", "kills", "losses"])
def test_deaths_and_lost_replies_leave_no_units_that_no_worker_is_told_of(seed: int) -> None:
    shop = sold(seed, kills=0.006, lost_replies=0.05)
    shop.check_refusals()
    shop.end()


def test_a_death_before_any_step_leaves_an_order_with_its_outbox_place_or_neither() -> None:
    seen, step = set[tuple[str, ...]](), 0
    while True:
        step += 1
        shop, deaths = Shop(step, 9), list[int]()
        orders = Order(order_of(shop, 0), 7), Order(order_of(shop, 1), 1)  # the first has to be brought together
        ids = tuple(order.order_id for order in orders)
        plan = shop.plans().submit(submission(*orders))
        dying = ending_before(plan, step, lambda: deaths.append(1))  # noqa: B023  # ended in this turn
        shop.world.start("victim", dying)
        shop.run()
        states = check_places(shop, ids)
        seen.add(tuple(sorted(states)))
        if states:  # whoever sweeps finds them
            assert set(shop.world.model.execute(op.ListOutboxes())) == set(shop.directory.shards)
        again = shop.done(scattered(shop.plans().submit(submission(*orders)), shop.chance))
        assert all(isinstance(answer, Reserved) for _, answer in again)
        assert set(check_places(shop, ids)) == set(ids)
        shop.check()
        if not deaths:
            break
    assert seen == {(), (ids[1],), tuple(sorted(ids))}
    assert step > 15


BOTH: list[Deciding] = ["at acceptance", "in the worker"]
SUBMITTED_SKU: Final = "ticket"
STOCK: Final = 30
TTL_MS: Final = 300
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
            operation = op.ReserveMany(SUBMITTED_SKU, page, self.hold_ms, publish_after_ms=outbox.publish_after_ms)
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
            answers = yield from settle_many_plan(op.SettleMany(SUBMITTED_SKU, "confirmed", ids, decided=False))
            ids = tuple(one for one, answer in zip(ids, answers, strict=True) if isinstance(answer, OrderQueued))
            if not ids:
                return
        operation = op.TakeOrders(SUBMITTED_SKU, ids, holder_id, TTL_MS, self.hold_ms, TTL_MS, TERMS.begun_max)
        taken, _ = yield from take_plan(operation, shard_keys(SUBMITTED_SKU).freed, 0.5)
        begun = [one.order.order_id for one in taken.orders if isinstance(one, BegunOrder)] if taken else []
        if not begun:
            return
        if has_step:
            yield from perform(Sleep(self.chance.choice([0.01, 0.2, 0.5])))  # the last one oversleeps
            if self.chance.random() < 0.5:
                yield from perform(op.RenewWork(SUBMITTED_SKU, tuple(begun), holder_id, TTL_MS, self.hold_ms, TTL_MS))
            if self.chance.random() < 0.3:
                failed = begun.pop()
                counts = self.chance.random() < 0.5
                yield from perform(
                    op.PutOff(SUBMITTED_SKU, (failed,), holder_id, 100, counts, TERMS.begun_max, "it rained")
                )
        if begun:
            yield from settle_many_plan(
                op.SettleMany(SUBMITTED_SKU, "confirmed", tuple(begun), decided=False, holder_id=holder_id)
            )

    def sweeper(self, fencing_token: int | None) -> Plan[None]:
        """Sweep until nothing is due; what was published is lost if the sweep dies behind the script."""
        while True:
            try:
                answer = yield from perform(sweep_operation(SUBMITTED_SKU, TERMS, 4, fencing_token))
            except StoreUnavailable:
                continue
            if isinstance(answer, SweepSuperseded):
                return
            for envelope in envelopes_of(answer.due):
                self.tell(envelope, lost=0.1)
            if not answer.is_more_due:
                return

    def replayer(self) -> Plan[None]:
        dead = yield from dead_plan(SUBMITTED_SKU)
        if dead:
            yield from perform(op.ReplayDead(SUBMITTED_SKU, tuple(one.order_id for one in dead)))

    # --- the whole ---

    def check(self) -> None:
        """Nothing is stranded, at no moment: who is undecided is in the outbox or dead, who is decided is not."""
        state = self.world.model.execute(op.ReadPool(SUBMITTED_SKU))
        assert state.available + state.reserved + state.confirmed == STOCK
        assert min(state.available, *state.stock) >= 0
        for found in self.world.model.execute(
            op.ReadSubmitted(SUBMITTED_SKU, tuple(order.order_id for order in self.wanted))
        ):
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
        found = self.world.model.execute(op.ReadOutbox(SUBMITTED_SKU))
        return not (found.waiting or found.dead)


def sale_of(seed: int, decides: Deciding, *, hold_ms: int = LONG_MS) -> Sale:
    """Run a sale to its end: first with deaths and losses, then with what heals them."""
    chance = random.Random(seed)
    world = Simulation(seed, lost_replies=0.05, kills=0.01)
    world.model.execute(op.OpenPool(SUBMITTED_SKU, STOCK, 1 + seed % 4, gated=False))
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
            world.start(f"expire {number}", expire_plan(SUBMITTED_SKU, 1_000))
        sale.round(number, workers=2)
    assert sale.is_finished()
    return sale


def check_decided_once(sale: Sale, fates: set[str]) -> dict[str, str]:
    """Compare the orders with the ledger, which has each decision once, and with the units."""
    actor = sale.world.start("audit", audit_plan(SUBMITTED_SKU))
    sale.world.run()
    assert isinstance(actor.outcome, tuple)
    report = actor.outcome[0]
    assert report.is_clean, report.drift
    assert (report.state.reserved, report.oversold, report.refused_wrongly) == (0, 0, 0)
    entries = sale.world.model.execute(op.ReadLedger(SUBMITTED_SKU, 0, 10_000))
    decisions = Counter(entry.order_id for entry in entries if entry.kind in {"confirmed", "refused", "expired"})
    ids = tuple(order.order_id for order in sale.wanted)
    states = {one.order_id: one.state for one in sale.world.model.execute(op.ReadSubmitted(SUBMITTED_SKU, ids))}
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
