"""What may happen at each single step of a request to a pool in shards, and of its opening."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented import protocol as op
from segmented.errors import PoolMissing
from segmented.models import AlreadyOpen, Opened, Order, Reserved, SoldOut
from segmented.plans import Plan, perform
from segmented.stock.settings import PoolSettings
from segmented.stock.sharded.plans import ShardedPlans
from segmented.testing import Sleep
from tests.support.pools.carting import ending_before, one_by_one
from tests.support.sim.seeds import each_seed
from tests.support.sim.sharded_shop import HOLD_MS, SKU, Shop, order_of, scattered

if TYPE_CHECKING:
    from collections.abc import Callable

# --- what happens at any step of a request that is about to be refused ---


def reserved(shop: Shop, name: str, shard: int, quantity: int, hold_ms: int = 60_000) -> str:
    """Take units of a shard for an order that is at home there."""
    order_id = order_of(shop, shard, name)
    answer = shop.world.model.execute(op.Reserve(shop.directory.shards[shard], Order(order_id, quantity), hold_ms))
    assert isinstance(answer, Reserved)
    return order_id


def cancelled(shop: Shop) -> None:
    shop.world.model.execute(op.Cancel(shop.directory.shards[0], order_of(shop, 0, "held")))


def lapsed(shop: Shop) -> None:
    shop.world.clock.advance(60.0)


def restocked(shop: Shop) -> None:
    shop.world.model.execute(op.Restock(shop.directory.shards[0], "more", 2))


def sent(shop: Shop) -> None:
    first, second = shop.directory.shards[:2]
    transfer = shop.world.model.execute(op.SendUnits(second, 0, 2))
    if transfer is not None:  # the request may have them by now
        shop.world.model.execute(op.ReceiveUnits(first, 1, transfer.number, transfer.sent, epoch=1))
        shop.world.model.execute(op.AcknowledgeUnits(second, 0, transfer.number, epoch=1))


@pytest.mark.parametrize("happens", [cancelled, lapsed, restocked, sent], ids=lambda function: function.__name__)
def test_units_that_move_between_shards_during_the_search_are_no_reason_to_refuse(
    happens: Callable[[Shop], None],
) -> None:
    """There are always two units: first in shard 1, then in shard 0. The order is at home in shard 2, and wants two."""
    for step in range(40):
        shop = Shop(step, 6)
        reserved(shop, "held", 0, 2)
        reserved(shop, "sold", 2, 2, hold_ms=600_000)
        plan = one_by_one(shop.plans().reserve(op.Reserve(SKU, Order(order_of(shop, 2), 2), HOLD_MS)))
        answer, is_over = stepped(shop, plan, step)
        if is_over:
            assert step > 8
            assert isinstance(answer, Reserved)
            return
        happens(shop)
        for quantity in (2, 1):
            if happens is not sent and shop.states()[1].available >= quantity:
                reserved(shop, f"bought{quantity}", 1, quantity)
        if sum(state.available for state in shop.states()) + shop.away(shop.states()) + shop.lapsed() >= 2:
            assert isinstance(shop.done(going_on(plan, answer)), Reserved), step
    pytest.fail("the request never ended")


def stepped(shop: Shop, plan: Plan[Any], steps: int) -> tuple[Any, bool]:
    """Run a plan for some effects; returns the reply to the last, or the plan's outcome and True."""
    reply: Any = None
    for _ in range(steps):
        try:
            effect = plan.send(reply)
        except StopIteration as stop:
            return stop.value, True
        reply = shop.done(perform(effect))
    return reply, False


def going_on(plan: Plan[Any], reply: Any) -> Plan[Any]:  # noqa: ANN401  # to any effect
    """Run the rest of a plan that was stopped before the reply to its last effect."""
    while True:
        try:
            effect = plan.send(reply)
        except StopIteration as stop:
            return stop.value
        reply = yield effect


def test_what_a_process_gives_back_at_any_step_of_a_request_is_buyable_there_at_once() -> None:
    for step in range(60):
        shop = Shop(step, 3)
        held = [reserved(shop, "held", shard, 1) for shard in range(3)]
        plans = shop.plans()
        plan = one_by_one(plans.reserve(op.Reserve(SKU, Order(order_of(shop, 2, "early"), 1), HOLD_MS)))
        answer, is_over = stepped(shop, plan, step)
        shop.done(perform(op.Cancel(shop.directory.shards[0], held[0])))
        plans.note_return()
        if not is_over:
            answer = shop.done(going_on(plan, answer))
        if not isinstance(answer, Reserved):
            assert isinstance(answer, SoldOut)
            late = shop.done(plans.reserve(op.Reserve(SKU, Order(order_of(shop, 1, "late"), 1), HOLD_MS)))
            assert isinstance(late, Reserved), step
        if is_over:
            assert step > 8
            return
    pytest.fail("the request never ended")


def test_what_another_process_gives_back_is_buyable_within_a_tenth_of_a_second() -> None:
    shop = Shop(1, 3)
    held = [reserved(shop, "held", shard, 1) for shard in range(3)]
    plans, others = shop.plans(), shop.plans()
    early = shop.done(plans.reserve(op.Reserve(SKU, Order(order_of(shop, 2, "early"), 1), HOLD_MS)))
    assert isinstance(early, SoldOut)
    shop.done(others.cancel(op.Cancel(SKU, held[0]), None))
    shop.world.clock.advance(0.1)
    assert isinstance(shop.done(plans.reserve(op.Reserve(SKU, Order(order_of(shop, 1, "late"), 1), HOLD_MS))), Reserved)


def test_any_number_of_lapsed_holds_in_other_shards_is_no_reason_to_refuse() -> None:
    shop = Shop(1, 300)
    for shard in range(3):
        for index in range(100):
            order = Order(f"{index} of {shard}", 1)
            shop.world.model.execute(op.Reserve(shop.directory.shards[shard], order, 10))
    shop.world.clock.advance(1.0)
    answer = shop.done(shop.plans().reserve(op.Reserve(SKU, Order(order_of(shop, 1), 300), HOLD_MS)))
    assert isinstance(answer, Reserved)


# --- opening ---


def opening(stock: int) -> op.OpenPool:
    return op.OpenPool("other", stock, 6, gated=False)


def plans_of(shop: Shop) -> ShardedPlans:
    return ShardedPlans(PoolSettings("other", ttl=1.0, hold=1.0), 0.0, shop.world.clock)


def test_an_opening_that_dies_before_any_step_continues_with_its_first_numbers() -> None:
    shop, deaths, step, seen = Shop(1, 3), list[int](), 0, set[int]()
    while len(deaths) == step:
        step += 1
        shop = Shop(step, 3)
        dying = ending_before(plans_of(shop).open(opening(60), 3), step, lambda: deaths.append(1))
        shop.world.start("dies", dying)
        shop.world.run()
        early = asked_early(shop)
        shop.done(plans_of(shop).open(opening(90), 2))
        if early is not None:
            assert isinstance(early, Reserved)  # of the whole pool: it was open
            shop.done(plans_of(shop).cancel(op.Cancel("other", "early"), None))
        state = shop.done(plans_of(shop).state())
        seen.add(state.opened)
        assert state.available == state.opened
        taken = shop.done(plans_of(shop).reserve(op.Reserve("other", Order("all", state.opened), 1_000)))
        assert isinstance(taken, Reserved)
        late = shop.done(plans_of(shop).open(opening(90), 2))
        assert isinstance(late, AlreadyOpen)
        assert (late.state.available, late.state.reserved) == (0, state.opened)
    assert seen == {60, 90}
    assert step > 12


def asked_early(shop: Shop) -> object:
    """Ask for the whole pool; None while there is none."""
    try:
        return shop.done(plans_of(shop).reserve(op.Reserve("other", Order("early", 60), 1_000)))
    except PoolMissing:
        return None


def early_buyer(shop: Shop, order: Order) -> Plan[object]:
    """Try until the pool is open."""
    while True:
        try:
            operation = op.Reserve("other", order, 60_000)
            return (yield from scattered(plans_of(shop).reserve(operation), shop.chance))
        except PoolMissing:
            yield from perform(Sleep(0.001))


@each_seed(meets=["turns"])
def test_two_who_open_at_once_and_buyers_who_come_early_meet_one_pool(seed: int) -> None:
    shop = Shop(seed, 3)
    for stock in (60, 90):
        plan = scattered(plans_of(shop).open(opening(stock), 3), shop.chance)
        shop.world.start(f"opens {stock}", plan)
    for index in range(20):
        shop.world.start(f"b{index}", early_buyer(shop, Order(f"b{index}", 5)))
    shop.world.run()
    opened = [actor.outcome for actor in shop.world.actors if actor.name.startswith("opens")]
    assert all(isinstance(outcome, Opened | AlreadyOpen) for outcome in opened)
    bought = [actor.outcome for actor in shop.world.actors if actor.name.startswith("b")]
    units = 5 * sum(isinstance(outcome, Reserved) for outcome in bought)
    assert all(isinstance(outcome, Reserved | SoldOut) for outcome in bought)
    assert units >= 60
    state = shop.done(plans_of(shop).state())
    assert state.opened in {60, 90}
    assert (state.available, state.reserved) == (state.opened - units, units)
