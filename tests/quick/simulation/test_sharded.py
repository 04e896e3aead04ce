"""Pools in shards in the simulator."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest

from bench.micro.stock.measure import count_transfers
from segmented import protocol as op
from segmented.clock import ManualClock
from segmented.errors import PoolMissing
from segmented.models import AlreadyOpen, Decided, Granted, Held, Opened, Order, Reserved, Settled, SoldOut
from segmented.plans import Plan, perform
from segmented.stock.settings import PoolSettings
from segmented.stock.sharded.plans import ShardedPlans
from segmented.stores.memory import MemoryStore
from tests.support.pools.carting import ending_before
from tests.support.sim.seeds import each_seed
from tests.support.sim.sharded_shop import GATHER_LOCK, HOLD_MS, SKU, Shop, order_of
from tests.support.sim.simulator import Killed, Sleep, scattered


def sellers(shop: Shop, count: int, *, processes: int | None = None, quantity_max: int = 6) -> list[Any]:
    """Start buyers, each a process of its own or some together; a third gives back or lets lapse."""
    shared = [shop.plans() for _ in range(processes or 0)]
    actors = []
    for index in range(count):
        order = Order(f"o{index}", shop.chance.randint(1, quantity_max))
        plans = shared[index % len(shared)] if shared else shop.plans()
        end = shop.chance.choice(["confirm", "confirm", "confirm", "confirm", "cancel", "forget"])
        plan = shop.buyer(plans, order, end, granted=index % 3 == 0)
        process = f"p{index % len(shared)}" if shared else f"p-{index}"
        actors.append(shop.world.start(order.order_id, plan, process=process))
    return actors


def check_outcomes(shop: Shop) -> None:
    """Nobody met an error that the deaths and lost replies of others do not account for."""
    fates = (Settled, Decided, SoldOut, Reserved, Granted, Killed)
    for actor in shop.world.actors:
        if actor.name.startswith("o"):
            assert isinstance(actor.outcome, fates) or actor.outcome == "gave up", actor


@each_seed(1, meets=["turns"])
def test_buyers_of_many_processes_sell_out_exactly_and_are_refused_rightly(seed: int) -> None:
    shop = Shop(seed, 60)
    actors = sellers(shop, 30)
    shop.run()
    assert not any(actor.outcome == "gave up" for actor in actors)
    check_outcomes(shop)
    shop.check_refusals()
    shop.end()


@each_seed(1, meets=["kills", "losses", "refused", "transfers"])
def test_deaths_and_lost_replies_lose_no_unit_and_strand_none(seed: int) -> Counter[str]:
    shop = Shop(seed, 40, shards=5, lost_replies=0.05, kills=0.006)
    sellers(shop, 24)
    shop.run()
    transfers = sum(one.number for state in shop.states() for one in state.transfers if one.kind == "sent")
    check_outcomes(shop)
    shop.check_refusals()
    shop.end()
    return Counter(refused=len(shop.refusals), transfers=transfers)


@each_seed(1, meets=["turns", "kills"])
def test_processes_that_stop_and_go_on_and_messages_that_come_again_change_nothing(seed: int) -> None:
    shop = Shop(seed, 40, shards=4, kills=0.002)
    shop.stalls = 0.02
    sellers(shop, 24)
    shop.run()
    check_outcomes(shop)
    shop.check_refusals()
    shop.end()


@each_seed(1, meets=["turns", "losses"])
def test_buyers_who_share_what_their_process_has_found_out_are_refused_rightly(seed: int) -> None:
    shop = Shop(seed, 40, lost_replies=0.02)
    sellers(shop, 40, processes=2)
    shop.run()
    shop.check_refusals()
    shop.end()


# --- every step at which one can die ---


def test_a_death_before_any_step_leaves_nothing_that_the_next_buyer_does_not_get() -> None:
    """The process may die before each step; what it took comes back."""
    seen, step = set[str](), 0
    while "done" not in seen:
        step += 1
        shop = Shop(step, 9)
        victim = Order(order_of(shop, 0), 8)
        deaths: list[int] = []
        plan = shop.plans().reserve(op.Reserve(SKU, victim, HOLD_MS * 1_000))
        shop.world.start("victim", ending_before(plan, step, lambda: deaths.append(1)))  # noqa: B023  # ended in this turn
        shop.run()
        seen |= left_behind(shop) if deaths else {"done"}
        has_units = sum(state.reserved for state in shop.states()) > 0
        buyer = Order(order_of(shop, 1), 1 if has_units else 9)
        answer = shop.done(scattered(shop.plans().reserve(op.Reserve(SKU, buyer, HOLD_MS)), shop.chance))
        assert isinstance(answer, Reserved), (step, answer)
        shop.check()
        assert shop.away(shop.states()) == 0
    assert seen == {"nothing", "sent", "received", "locked", "done"}
    assert step > 15


def left_behind(shop: Shop) -> set[str]:
    """Name what a dead process has left."""
    states = shop.states()
    found = {"sent"} if shop.away(states) else set()
    if any(one.kind == "away" for state in states for one in state.transfers) and not found:
        found = {"received"}
    if isinstance(shop.world.model.execute(op.AcquireLock(GATHER_LOCK, "looks", 1)), Held):
        found |= {"locked"}
    shop.world.clock.advance(0.002)  # what the look took lapses
    return found or {"nothing"}


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
        plan = scattered(shop.plans().reserve(op.Reserve(SKU, Order(order_of(shop, 2), 2), HOLD_MS)))
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
        plan = scattered(plans.reserve(op.Reserve(SKU, Order(order_of(shop, 2, "early"), 1), HOLD_MS)))
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


EARLY_MAX: Final = 0.05
"""Maximum share of sales that need a transfer, until 90 % of the stock is sold."""
TRANSFERS_MAX: Final = 16
"""In this sale, which has 11; 23 without the halving."""


def test_fewer_than_one_sale_in_twenty_needs_a_transfer_until_nine_tenths_are_sold() -> None:
    count = count_transfers(MemoryStore(clock=ManualClock()), "ticket", stock=2_000, seed=4)
    assert count.early_sales > 560
    assert count.early_transfers == 0
    assert count.transfers <= TRANSFERS_MAX


def test_small_stock_on_many_shards_stays_below_the_bound_as_well() -> None:
    store = MemoryStore(clock=ManualClock())
    assert count_transfers(store, "many shards", stock=2_000, shards=16).early_share <= EARLY_MAX
    assert count_transfers(store, "small stock", stock=200).early_share <= EARLY_MAX
