"""Orders submitted to a pool in shards, interleaved from seeds: units come with a record and a place in the outbox."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from segmented import protocol as op
from segmented.errors import SegmentedError, StoreUnavailable
from segmented.models import Order, Reserved, SoldOut
from segmented.plans import perform
from segmented.testing import Sleep
from tests.support.pools.carting import ending_before
from tests.support.sim.seeds import each_seed
from tests.support.sim.sharded_shop import SKU, TRIES, Refused, Shop, order_of, scattered

if TYPE_CHECKING:
    from segmented.plans import Plan
    from segmented.stock.sharded.plans import ShardedPlans

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
