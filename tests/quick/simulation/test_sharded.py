"""A pool in shards, interleaved from seeds: what must hold however buyers, deaths and lost replies fall together."""

from __future__ import annotations

from collections import Counter
from typing import Any

from segmented import protocol as op
from segmented.models import Decided, Granted, Held, Order, Reserved, Settled, SoldOut
from segmented.testing import Killed
from tests.support.pools.carting import ending_before
from tests.support.sim.seeds import each_seed
from tests.support.sim.sharded_shop import GATHER_LOCK, HOLD_MS, SKU, Shop, order_of, scattered


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
