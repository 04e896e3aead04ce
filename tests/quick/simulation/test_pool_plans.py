"""The pool's plans, interleaved from seeds: what must hold however orders, deaths and lost replies fall together."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from itertools import count, groupby
from math import inf
from typing import Any

import pytest

from segmented import protocol as op
from segmented.errors import StoreUnavailable
from segmented.keys import shard_keys
from segmented.models import Granted, Order, Settled, SoldOut
from segmented.plans import Join, Leave, Now, Park, Plan, perform
from segmented.protocol.lock import LEFT_MS, NEWCOMERS_MAX
from segmented.stock import AuditReport, LedgerFold
from segmented.stock.audit import audit_plan
from segmented.stock.plans import expire_plan, grant_plan
from tests.support.sim.seeds import each_seed
from tests.support.sim.simulator import Killed, Part, Schedule, Simulation, Sleep, keeping_to

SKU = "ticket"
TAKING_SECONDS = 1.0
LONGEST_SECONDS = 8 * (NEWCOMERS_MAX + 1) * 0.005
"""For a turn of each of eight processes, with newcomers before it, each of 2 ms and the steps of the simulator."""


def buyer(order: Order, holder_id: str, *, cancels: bool = False, work: float = 0.02) -> Plan[object]:
    """Take an order to its end; try again when a reply was lost, as a second delivery would."""
    for attempt in range(20):
        operation = op.Grant(SKU, order, f"{holder_id}-{attempt}", ttl_ms=300, hold_ms=600, keep_refusal=False)
        try:
            answer, _ = yield from grant_plan(operation, None)
            if not isinstance(answer, Granted):
                return answer
            yield from perform(Sleep(work))
            end: op.Operation[Any] = op.Confirm(SKU, order.order_id)
            if cancels:
                end = op.Cancel(SKU, order.order_id, operation.holder_id)
            return (yield from perform(end))
        except StoreUnavailable:
            continue
    return "gave up"


def world_with_pool(
    seed: int, stock: int, segments: int, *, lost_replies: float = 0.0, kills: float = 0.0
) -> Simulation:
    world = Simulation(seed, lost_replies=lost_replies, kills=kills)
    world.model.execute(op.OpenPool(SKU, stock, segments, gated=False))
    return world


def audited(world: Simulation) -> tuple[AuditReport, LedgerFold]:
    world.kills = world.lost_replies = 0.0
    actor = world.start("audit", audit_plan(SKU))
    world.run()
    assert isinstance(actor.outcome, tuple)
    fold = LedgerFold()
    after = 0
    while page := world.model.execute(op.ReadLedger(SKU, after, 1_000)):
        fold.apply(page)
        after = page[-1].sequence
    return actor.outcome[0], fold


@each_seed(meets=["turns"])
def test_forty_orders_for_sixty_units_sell_out_exactly_and_refuse_rightly(seed: int) -> None:
    world = world_with_pool(seed, stock=60, segments=5)
    chance = random.Random(seed)
    orders = [Order(f"o{index}", chance.randint(1, 6)) for index in range(40)]
    actors = [
        world.start(order.order_id, buyer(order, order.order_id), process=f"p{index % 3}")
        for index, order in enumerate(orders)
    ]
    world.run()
    report, fold = audited(world)
    assert report.is_clean
    assert report.state.confirmed + report.state.available == 60
    refused = [actor.outcome for actor in actors if isinstance(actor.outcome, SoldOut)]
    sold = [actor.outcome for actor in actors if isinstance(actor.outcome, Settled)]
    assert len(refused) + len(sold) == 40
    assert [refusal for refusal in refused if fold.covers(refusal.quantity, refusal.sequence)] == []


@each_seed(meets=["turns", "kills", "losses"])
def test_deaths_and_lost_replies_neither_oversell_nor_strand_a_unit(seed: int) -> None:
    world = world_with_pool(seed, stock=30, segments=3, lost_replies=0.05, kills=0.005)
    orders = [Order(f"o{index}", 1 + index % 3) for index in range(24)]
    for order in orders:
        world.start(order.order_id, buyer(order, order.order_id, cancels=order.quantity == 2))
    world.run()
    world.kills = world.lost_replies = 0.0
    world.clock.advance(2.0)
    world.start("sweep", expire_plan(SKU, 1_000))
    world.run()
    report, _ = audited(world)
    assert report.drift == ()
    assert report.oversold == 0
    assert report.state.reserved == 0
    assert report.state.available + report.state.confirmed == 30


@each_seed(meets=["turns", "kills"])
def test_two_deliveries_of_one_order_have_one_effect(seed: int) -> None:
    world = world_with_pool(seed, stock=10, segments=4, kills=0.01)
    order = Order("twice", 3)
    actors = [world.start(f"d{index}", buyer(order, f"d{index}")) for index in range(4)]
    world.run()
    report, _ = audited(world)
    assert report.drift == ()
    if all(isinstance(actor.outcome, Killed) for actor in actors):
        assert report.state.confirmed in {0, 3}
    else:
        assert report.state.confirmed == 3


@each_seed(meets=["turns"])
def test_confirm_cancel_and_expire_have_exactly_one_winner(seed: int) -> None:
    world = world_with_pool(seed, stock=5, segments=2)
    world.model.execute(op.Reserve(SKU, Order("raced", 5), hold_ms=0))
    racers = [op.Confirm(SKU, "raced"), op.Cancel(SKU, "raced"), op.Expire(SKU, "raced")]
    actors = [world.start(type(racer).__name__, perform(racer)) for racer in racers]
    world.run()
    winners = [actor for actor in actors if isinstance(actor.outcome, Settled) and not actor.outcome.replay]
    assert len(winners) == 1
    fates = [actor.outcome for actor in actors if isinstance(actor.outcome, Settled)]
    assert len({fate.state for fate in fates}) == 1
    assert len(fates) == 3
    assert audited(world)[0].is_clean


def test_everyone_who_waits_for_a_segment_is_told_when_the_pool_sells_out() -> None:
    world = world_with_pool(1, stock=4, segments=2)
    actors = [world.start(f"o{index}", buyer(Order(f"o{index}", 1), f"h{index}"), process="one") for index in range(30)]
    began = world.clock.now()
    world.run()
    assert sum(isinstance(actor.outcome, SoldOut) for actor in actors) == 26
    assert world.clock.now() < began + 0.5  # all at once, and not one after the other at its next look


def taking_turns(turns: list[tuple[str, float]], party: str, *, ttl_ms: int = 60_000) -> Plan[None]:
    """Sell order after order for a second, as the only waiter of a process; note the seconds of each wait."""
    number, ends_at = 0, (yield from perform(Now())) + TAKING_SECONDS
    while (began := (yield from perform(Now()))) < ends_at:
        number += 1
        order_id = f"{party}.{number}"
        operation = op.Grant(SKU, Order(order_id, 1), order_id, ttl_ms, ttl_ms, keep_refusal=False)
        answer, _ = yield from grant_plan(operation, None)
        assert isinstance(answer, Granted)
        turns.append((party, (yield from perform(Now())) - began))
        yield from perform(Sleep(0.002))
        yield from perform(op.Confirm(SKU, order_id, order_id))


@pytest.mark.parametrize("segments", [1, 4])
@each_seed(1)
def test_processes_that_sell_again_at_once_have_equal_shares_and_nobody_waits_long(seed: int, segments: int) -> None:
    turns = list[tuple[str, float]]()
    with keeping_to(Schedule(turns=Part(left_out=frozenset(range(100_000))))):  # each plan goes on until it sleeps
        world = world_with_pool(seed, stock=100_000, segments=segments)
    for index in range(8):
        world.start(f"p{index}", taking_turns(turns, f"p{index}"))
    world.run()
    counts = Counter(party for party, _ in turns).values()
    jain = sum(counts) ** 2 / (8 * sum(count**2 for count in counts))
    assert (len(counts), jain > 0.97) == (8, True)
    assert max(wait for _, wait in turns) < LONGEST_SECONDS
    if segments == 1:
        rows = [len(list(row)) for _, row in groupby(party for party, _ in turns)]
        assert max(rows[:-1]) == NEWCOMERS_MAX + 1


@pytest.mark.parametrize("segments", [1, 4])
@each_seed(2, meets=["turns", "kills", "losses"])
def test_a_dead_process_costs_the_others_its_lease_and_the_time_its_segment_is_kept(seed: int, segments: int) -> None:
    turns, world = list[tuple[str, float]](), world_with_pool(seed, 100_000, segments, kills=0.001, lost_replies=0.001)
    for index in range(8):
        world.start(f"p{index}", taking_turns(turns, f"p{index}", ttl_ms=100))
    world.run()
    ended = sum(actor.outcome is not None for actor in world.actors)
    assert max((wait for _, wait in turns), default=0.0) < LONGEST_SECONDS + ended * (0.1 + LEFT_MS / 1000)


def taking_once(party: str, waiting: set[str], *, after: float = 0.0, dying: Sequence[str] = ()) -> Plan[None]:
    """Take a segment once, as the only waiter of a process, behind processes that ask once more and die."""
    yield from perform(Sleep(after))
    for other in dying:
        yield from perform(asking(other, other))
    waiting.add(party)
    answer, _ = yield from grant_plan(asking(party), None)
    assert isinstance(answer, Granted)
    waiting.remove(party)
    yield from perform(Sleep(0.02))
    yield from perform(op.Confirm(SKU, party))


def asking(order_id: str, party: str = "") -> op.Grant:
    return op.Grant(SKU, Order(order_id, 1), order_id, 60_000, 60_000, keep_refusal=False, party=party)


@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize("dead", [1, 10, 40])
@each_seed(2)
def test_dead_processes_in_line_cost_at_most_a_tenth_of_a_second_in_all(seed: int, dead: int, segments: int) -> None:
    """A segment is free beside a waiter for less than 100 ms together, also if others die behind the first waiters."""
    world, waiting = world_with_pool(seed, stock=100, segments=segments), set[str]()
    unused, free_since = 0.0, inf
    for segment in range(segments):
        world.model.execute(asking(f"held{segment}"))
        world.start(f"holder{segment}", ending(f"held{segment}"))
    for number in range(dead):
        world.model.execute(asking(f"dead{number}", f"dead{number}"))

    def measure() -> None:
        nonlocal unused, free_since
        now = world.clock.now()
        unused += max(0.0, now - free_since)
        locked = world.model.ask("EXISTS", *(f"{shard_keys(SKU).lock}:{segment}" for segment in range(segments)))
        free_since = now if waiting and locked < segments else inf

    for number in range(3):
        world.start(f"live{number}", taking_once(f"live{number}", waiting))
    later = [f"later{number}" for number in range(10)]
    world.start("last", taking_once("last", waiting, after=0.1, dying=later))
    world.run(check=measure)
    assert waiting == set()
    assert 0.03 < unused < 0.1


def ending(order_id: str) -> Plan[None]:
    """End an order after all waiters are in line."""
    yield from perform(Sleep(0.3))
    yield from perform(op.Confirm(SKU, order_id))


def cancelled(plan: Plan[object], at: int) -> Plan[object]:
    """Run a plan, and cancel it at its effect of this number: in its sleep, or when the effect has ended."""
    reply: Any = None
    failure: BaseException | None = None
    for number in count():
        try:
            effect = plan.send(reply) if failure is None else plan.throw(failure)
        except StopIteration as stop:
            return stop.value
        except asyncio.CancelledError:
            return "cancelled"
        reply = failure = None
        is_now = number == at and not isinstance(effect, (Join, Leave, Now))  # these let no cancellation in
        if not (is_now and isinstance(effect, Park)):
            try:
                reply = yield effect
            except StoreUnavailable as error:
                failure = error
        if is_now:
            failure = asyncio.CancelledError()
    raise AssertionError


def buying(operation: op.Grant, timeout: float) -> Plan[object]:
    """Take a segment and confirm, or give up."""
    answer, _ = yield from grant_plan(operation, timeout)
    if isinstance(answer, Granted):
        yield from perform(Sleep(0.01))
        return (yield from perform(op.Confirm(SKU, operation.order.order_id, operation.holder_id)))
    return answer


@pytest.mark.parametrize("segments", [1, 2])
@each_seed(6, meets=["turns", "cancelled", "in time", "too late"])
def test_no_ending_of_a_wait_leaves_a_place_in_the_line_of_processes(seed: int, segments: int) -> Counter[str]:
    """Sixteen buyers of four processes are cancelled at any effect, reach their deadlines, or buy."""
    world, chance = world_with_pool(seed, stock=100, segments=segments), random.Random(seed)
    actors = []
    for index in range(16):
        plan = buying(asking(f"o{index}"), chance.choice((0.005, 0.02, 0.05)))
        at = chance.randrange(20) if chance.random() < 0.5 else 1_000_000
        actors.append(world.start(f"o{index}", cancelled(plan, at), process=f"p{index % 4}"))
    world.run()
    keys = shard_keys(SKU)
    assert (world.model.ask("EXISTS", keys.line), world.model.ask("HGET", keys.meta, "line")) == (0, None)
    ends = Counter("cancelled" if one.outcome == "cancelled" else type(one.outcome).__name__ for one in actors)
    return Counter({"cancelled": ends["cancelled"], "in time": ends["Settled"], "too late": ends["Busy"]})
