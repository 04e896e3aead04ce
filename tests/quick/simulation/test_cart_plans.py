"""Carts, interleaved from seeds: all or nothing, whoever dies between which steps, and whatever replies are lost.

A batch goes to several servers, so a process may die when only some of them have got it: here its operations are
performed one by one, and death may come between any two.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from segmented import protocol as op
from segmented.errors import SegmentedError, StoreUnavailable
from segmented.models import Cart, CartDecided, CartRecord, CartRefused, CartReserved, CartSettled, SoldOut
from segmented.plans import Plan, perform
from segmented.stock import Drift
from segmented.stock.audit import audit_plan
from segmented.stock.carts import cancel_cart_plan, confirm_cart_plan, finish_carts_plan, reserve_cart_plan
from segmented.stock.plans import expire_plan
from tests.support.pools.carting import ending_before
from tests.support.sim.seeds import each_seed
from tests.support.sim.simulator import Simulation, Sleep, scattered

SKUS: Final = ("a", "b", "c", "d")
STOCK: Final = 12
HOLD_MS: Final = 50
TRIES: Final = 20


def insisting(make: Callable[[], Plan[Any]]) -> Plan[Any]:
    """Try again when a reply was lost, as a caller would."""
    for _ in range(TRIES):
        try:
            return (yield from scattered(make()))
        except StoreUnavailable:
            continue
    return None


def buyer(cart: Cart, end: str, work: float, hold_ms: int = HOLD_MS) -> Plan[list[object]]:
    """Reserve a cart and end it; returns all answers."""
    answers = [(yield from insisting(lambda: reserve_cart_plan(cart, hold_ms, {})))]
    if not isinstance(answers[0], CartReserved) or end == "forget":
        return answers
    yield from perform(Sleep(work))
    plan = confirm_cart_plan if end == "confirm" else cancel_cart_plan
    answers.append((yield from insisting(lambda: plan(cart.home, cart.cart_id))))
    return answers


def sweeper(rounds: int) -> Plan[None]:
    for _ in range(rounds):
        for sku in SKUS:
            yield from insisting(partial(finish_carts_plan, sku, 100))
        yield from perform(Sleep(0.02))


def auditor(found: list[Drift], rounds: int) -> Plan[None]:
    """Audit every pool, again and again; collect what is named."""
    for _ in range(rounds):
        for sku in SKUS:
            audited = yield from insisting(partial(audit_plan, sku))
            found += audited[0].drift if audited is not None else ()


class CartSimulation:
    """A world of four pools and many carts, whose promises are checked after every step."""

    def __init__(self, seed: int, *, lost_replies: float = 0.0, kills: float = 0.0, stock: int = STOCK) -> None:
        self.world = Simulation(seed, lost_replies=lost_replies, kills=kills)
        self.chance = random.Random(seed)
        self.stock = stock
        self.carts: list[Cart] = []
        self.digests: dict[Cart, tuple[str]] = {}
        for sku in SKUS:
            self.world.model.execute(op.OpenPool(sku, stock, 2, gated=False))

    def make_carts(self, count: int) -> None:
        for index in range(count):
            lines = [(self.chance.choice(SKUS), self.chance.randint(1, 3)) for _ in range(self.chance.randint(1, 5))]
            self.carts.append(Cart(f"c{index}", lines))

    def record(self, cart: Cart) -> CartRecord | None:
        try:
            return self.world.model.execute(op.ReadCart(cart.home, cart.cart_id))
        except SegmentedError:
            return None

    def order_ids(self, cart: Cart) -> tuple[str]:
        """Return the one id of its orders, which is a digest: not worth its while after every step."""
        if cart not in self.digests:
            self.digests[cart] = (cart.order_id,)
        return self.digests[cart]

    def lines(self, cart: Cart) -> list[str | None]:
        """Return the state of each line, None where there is none."""
        states: list[str | None] = []
        order_ids = self.order_ids(cart)
        for sku, _ in cart.lines:
            (found,) = self.world.model.execute(op.ReadOrders(sku, order_ids))
            states.append(found.state if found is not None else None)
        return states

    def check(self) -> None:
        """At any moment: no line is sold unless its cart is, and no line of a cart that is sold was given back."""
        for cart in self.carts:
            record, lines = self.record(cart), self.lines(cart)
            state = record.state if record else None
            if state == "confirmed":
                assert set(lines) <= {"reserved", "confirmed"}, (cart, lines)
            else:
                assert "confirmed" not in lines, (cart, state, lines)
            if state in {"open", "reserved"}:
                assert "cancelled" not in lines, (cart, lines)

    def sell(self) -> None:
        """Begin buyers that confirm, cancel and walk away, some of them twice, and somebody who sweeps."""
        for index, cart in enumerate(self.carts):
            end = self.chance.choice(["confirm", "confirm", "cancel", "forget"])
            self.world.start(f"{cart.cart_id}", buyer(cart, end, self.chance.choice([0.0, 0.04, 0.08])))
            if index % 3 == 0:  # a second delivery
                self.world.start(f"{cart.cart_id} again", buyer(cart, "confirm", 0.01))
        self.world.start("sweeper", sweeper(6))

    def run(self) -> None:
        self.world.run(check=self.check)

    def end(self) -> None:
        """Sweep, and check what must hold when everything has come to rest."""
        self.world.kills = self.world.lost_replies = 0.0
        self.world.clock.advance(1.0)
        self.world.start("last sweep", sweeper(2))
        self.run()
        for sku in SKUS:  # what a late line took after its cart was void lapses as any hold
            self.world.start(f"expire {sku}", expire_plan(sku, 1_000))
        self.run()
        sold = dict.fromkeys(SKUS, 0)
        for cart in self.carts:
            record, lines = self.record(cart), self.lines(cart)
            assert record is None or record.is_finished
            if record is not None and record.state == "confirmed":
                assert set(lines) == {"confirmed"}
                for sku, quantity in cart.lines:
                    sold[sku] += quantity
            else:
                assert set(lines) <= {None, "cancelled", "expired"}
        for sku in SKUS:
            report = self._audited(sku)
            assert (report.drift, report.oversold, report.refused_wrongly) == ((), 0, 0)
            assert (report.state.confirmed, report.state.reserved) == (sold[sku], 0)
            assert report.state.available == self.stock - sold[sku]
            assert self.world.model.execute(op.ListDueCarts(sku, 1_000)) == ()

    def _audited(self, sku: str) -> Any:  # noqa: ANN401  # the audit's report
        actor = self.world.start(f"audit {sku}", audit_plan(sku))
        self.world.run()
        return actor.outcome[0]  # type: ignore[index]  # a pair


@each_seed(2, meets=["turns", "kills", "losses"])
def test_deaths_and_lost_replies_between_any_two_steps_leave_every_cart_whole(seed: int) -> None:
    simulation = CartSimulation(seed, lost_replies=0.05, kills=0.02)
    simulation.make_carts(14)
    simulation.sell()
    simulation.run()
    simulation.end()


@each_seed(1, meets=["turns", "kills", "losses"])
def test_audits_between_any_two_steps_name_nothing(seed: int) -> None:
    simulation = CartSimulation(seed, lost_replies=0.02, kills=0.01)
    simulation.make_carts(10)
    found: list[Drift] = []
    for index in range(4):
        simulation.world.start(f"auditor {index}", auditor(found, 4))
    simulation.sell()
    simulation.run()
    simulation.world.kills = 0.0
    simulation.world.start("last audit", auditor(found, 1))
    simulation.run()
    assert found == []


@each_seed(meets=["turns"])
def test_confirm_cancel_a_repeat_and_three_sweepers_have_one_winner(seed: int) -> None:
    simulation = CartSimulation(seed)
    cart = Cart("raced", [("a", 1), ("b", 2), ("c", 3)])
    simulation.carts.append(cart)
    simulation.world.start("buyer", buyer(cart, "forget", 0.0, hold_ms=1))
    simulation.run()
    simulation.world.clock.advance(0.01)
    place = cart.home, cart.cart_id
    deciders = [confirm_cart_plan(*place), cancel_cart_plan(*place), confirm_cart_plan(*place)]
    actors = [simulation.world.start(f"decider {index}", scattered(plan)) for index, plan in enumerate(deciders)]
    actors.append(simulation.world.start("repeat", scattered(reserve_cart_plan(cart, 1, {}))))
    sweepers = [simulation.world.start(f"sweeper {index}", scattered(finish_carts_plan("a", 10))) for index in range(3)]
    single = [simulation.world.start(f"pool {sku}", expire_plan(sku, 10)) for sku in "abc"]
    simulation.run()
    assert all(not isinstance(actor.outcome, BaseException) for actor in [*actors, *sweepers, *single])
    record = simulation.record(cart)
    assert record is not None
    answers = [actor.outcome for actor in actors if isinstance(actor.outcome, CartSettled)]
    answers += [one for actor in sweepers for one in actor.outcome.finished]  # type: ignore[attr-defined]  # a sweep's
    assert {answer.state for answer in answers} == {record.state}
    assert record.state in {"confirmed", "cancelled", "expired"}
    winners = sum(not answer.replay for answer in answers)
    is_repeat_first = isinstance(actors[-1].outcome, CartDecided) and record.state == "expired"
    assert winners == 1 or (winners == 0 and is_repeat_first)  # the repeat ends a cart whose hold is over, too
    simulation.end()


@each_seed(1, meets=["turns"])
def test_without_deaths_every_cart_is_answered_and_a_refusal_is_right(seed: int) -> None:
    simulation = CartSimulation(seed, stock=8)
    simulation.make_carts(20)
    actors = [
        simulation.world.start(cart.cart_id, buyer(cart, "confirm", 0.01, hold_ms=60_000), process=f"p{index % 3}")
        for index, cart in enumerate(simulation.carts)
    ]
    simulation.run()
    refused = 0
    for actor, cart in zip(actors, simulation.carts, strict=True):
        assert isinstance(actor.outcome, list)
        first, rest = actor.outcome[0], actor.outcome[1:]
        if isinstance(first, CartRefused):
            refused += 1
            answer = first.refusal
            assert isinstance(answer, SoldOut)
            assert dict(cart.lines)[first.sku] == answer.quantity > answer.available
        else:
            assert isinstance(first, CartReserved)
            assert rest == [CartSettled(cart.cart_id, "confirmed", replay=False, is_finished=True)]
    assert 0 < refused < len(actors)
    simulation.end()


@pytest.mark.parametrize("end", ["confirm", "cancel"])
@pytest.mark.parametrize("by", ["repeat", "sweep"])
def test_a_death_before_each_single_step_is_finished_by_a_repeat_or_a_sweep(end: str, by: str) -> None:
    deaths, step = [0], 0
    while len(deaths) > step:
        step += 1
        simulation = CartSimulation(1)
        cart = Cart("cut", [("c", 1), ("a", 2), ("b", 3)])
        simulation.carts.append(cart)
        dying = ending_before(buyer(cart, end, 0.0), step, partial(deaths.append, step))
        simulation.world.start("died", dying)
        simulation.run()
        if by == "repeat":
            simulation.world.start("repeat", buyer(cart, end, 0.0))
            simulation.run()
            record = simulation.record(cart)
            assert record is not None
            assert (record.state, record.is_finished) == ({"confirm": "confirmed", "cancel": "cancelled"}[end], True)
        simulation.end()
    assert step > 10
