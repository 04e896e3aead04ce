"""The handle of a pool."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from segmented import protocol as op
from segmented.errors import (
    AlreadySettled,
    ChangeGated,
    GrantLost,
    GrantSuperseded,
    InvalidInput,
    LeaseError,
    LeaseLost,
    PoolGated,
)
from segmented.keys import shard_keys
from segmented.models import Decided, Order, Refusal, Reserved, Settled, SoldOut
from segmented.plans import Listen, Park, Plan, perform, substituted
from segmented.protocol import Effect
from segmented.stock import Grant, Pool
from segmented.stock.plans import grant_plan
from segmented.stores.redis import RedisStore
from tests.fixtures.stores import Side
from tests.support.contract.pools.shop import Shop
from tests.support.contract.shards.sharding import sharded

SLEEPS_MAX: Final = 100


def asleep(side: Side, plan: Plan[Any], slept: list[int]) -> Plan[Any]:
    """Run a plan that nobody wakes: note how many milliseconds each sleep lasts, and let them pass at once."""

    def pass_by(effect: Effect[Any]) -> Plan[Any]:
        if isinstance(effect, Listen):
            return None
        if not isinstance(effect, Park):
            return (yield from perform(effect))
        seconds = min(effect.due, effect.deadline) - side.clock.now()
        slept.append(round(1_000 * seconds))
        assert len(slept) < SLEEPS_MAX, "it asks without a pause"
        side.pass_time(seconds)
        return False

    return substituted(plan, pass_by)


BRIEF = 0.02


def totals(pool: Pool) -> tuple[int, int, int]:
    state = pool.state()
    return state.available, state.reserved, state.confirmed


def granted(pool: Pool, order_id: str, *, quantity: int = 1) -> Grant:
    answer = pool.grant(order_id, quantity=quantity, timeout=0)
    assert not isinstance(answer, Refusal), answer
    return answer


def let_lease_lapse(pool: Pool, side: Side, grant: Grant) -> None:
    Shop(side, pool.sku).let_lease_lapse(grant.order_id, grant.holder_id)


# --- the with statement ---


# --- answers ---


def test_a_reservation_clears_more_due_holds_than_one_step_can(side: Side) -> None:
    pool = side.pool(side.name(), ttl=BRIEF, hold=BRIEF)
    pool.open(stock=50, segments=4)
    pool.reserve_many(Order(f"late{index}") for index in range(50))
    side.pass_time(2 * BRIEF)
    assert isinstance(pool.reserve("a", quantity=50), Reserved)
    assert totals(pool) == (0, 50, 0)


def test_expire_gives_back_every_lapsed_hold_up_to_the_limit(side: Side) -> None:
    pool = side.pool(side.name(), ttl=BRIEF, hold=BRIEF)
    pool.open(stock=500, segments=4)
    pool.reserve_many(Order(f"late{index}") for index in range(400))
    side.pass_time(2 * BRIEF)
    assert len(pool.expire(limit=30)) == 30
    before = pool.state().sequence
    assert (len(pool.expire(limit=150)), pool.state().sequence - before) == (150, 2)  # in two steps
    assert len(pool.expire()) == 220
    assert pool.expire() == ()
    assert totals(pool) == (500, 0, 0)


# --- leases ---


def test_a_renewed_grant_is_trusted_for_longer_and_a_confirmed_one_no_more(pool: Pool, side: Side) -> None:
    grant = granted(pool, "a")
    before = grant.trusted_until
    side.pass_time(0.001)
    grant.renew()
    assert grant.trusted_until > before
    grant.require()
    grant.confirm()
    assert not grant.is_trusted


def test_a_grant_whose_lease_has_lapsed_cannot_be_renewed(pool: Pool, side: Side) -> None:
    grant = granted(pool, "a")
    let_lease_lapse(pool, side, grant)
    for call in (grant.renew, grant.require):
        with pytest.raises(LeaseLost):
            call()
    assert not grant.is_trusted


# --- input ---


@pytest.mark.parametrize(
    ("ttl", "hold", "sentence"),
    [
        (0, 600, r"^ttl of 0 s is not a duration"),
        (10, -1, r"^hold of -1 s is not a duration"),
        (60, 10, r"^hold of 10 s is shorter than ttl of 60 s: the units would expire under a live lease$"),
    ],
)
def test_times_that_no_pool_can_have_are_rejected(memory: Side, ttl: float, hold: float, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        memory.pool("never made", ttl=ttl, hold=hold)


# --- how a second delivery of an order waits, and until when ---


def asked_again(shop: Shop, timeout: float | None) -> Plan[object]:
    operation = op.Grant(shop.sku, Order("a", 1), "second", 60_000, 60_000, keep_refusal=False)
    answer, _ = yield from grant_plan(operation, timeout)
    return answer


def test_a_second_delivery_learns_within_a_second_that_the_first_was_confirmed(memory: Side) -> None:
    shop, slept = Shop(memory, "sku"), list[int]()
    shop.open(8, 2)
    shop.granted("a")

    def confirmed_in_the_end() -> Plan[object]:
        plan = asked_again(shop, None)
        effect = next(plan)
        while True:
            if len(slept) == 7:
                yield from perform(op.Confirm(shop.sku, "a"))
            try:
                effect = plan.send((yield effect))
            except StopIteration as stop:
                return stop.value

    answer = memory.run(asleep(memory, confirmed_in_the_end(), slept))
    assert isinstance(answer, Decided)
    assert (answer.state, answer.replay, slept) == ("confirmed", True, [50, 100, 200, 400, 800, 800, 800])


def test_a_second_delivery_takes_over_when_the_lease_of_the_first_ends(memory: Side) -> None:
    shop, slept = Shop(memory, "sku"), list[int]()
    shop.open(8, 2)
    first = shop.granted("a", ttl_ms=500)
    answer = memory.run(asleep(memory, asked_again(shop, None), slept))
    assert getattr(answer, "fencing_token", 0) > first.fencing_token
    assert slept == [50, 100, 200, 151]


@pytest.fixture
def lasting(side: Side) -> Iterator[Pool]:
    """A pool whose holds live; not yet open."""
    made = side.pool(side.name())
    yield made
    assert made.audit().is_clean


# --- batches ---


def test_orders_that_lapsed_holds_keep_waiting_are_asked_again_and_keep_their_places(lasting: Pool, side: Side) -> None:
    brief = side.pool(lasting.sku, ttl=0.02, hold=0.02)
    brief.open(stock=1_000, segments=4)
    brief.reserve_many(Order(f"late{index}", 1) for index in range(1_000))
    side.pass_time(0.04)
    answers = lasting.reserve_many(Order(f"o{index}", 16) for index in range(63))
    assert [type(answer) for answer in answers] == [Reserved] * 62 + [SoldOut]
    assert answers[62] == SoldOut("o62", 16, available=8, reserved=992, sequence=answers[62].sequence)  # type: ignore[union-attr]  # compared as a whole
    assert totals(lasting) == (8, 992, 0)


# --- changes ---


CHANGES: dict[str, Callable[[Pool], object]] = {
    "restock": lambda pool: pool.restock(2, restock_id="r1"),
    "withdraw": lambda pool: pool.withdraw(2, withdraw_id="w1"),
    "resize": lambda pool: pool.resize(4),
}


def opened(side: Side, *, gated: bool = False, epoch: int = 1) -> Pool:
    """Open a pool of six units, and ask whether it is gated."""
    pool = side.pool(side.name())
    pool.open(stock=6, segments=2, gated=gated, epoch=epoch)
    assert pool.is_gated() is gated
    return pool


def opened_again(side: Side, pool: Pool, *, gated: bool, epoch: int = 1) -> Pool:
    """Have another process open the pool from nothing, as after its server lost its data."""
    side.raw().delete(*shard_keys(pool.sku).listed())
    with RedisStore(side.raw()) as other:
        Pool(other, pool.sku).open(stock=6, segments=2, gated=gated, epoch=epoch)
    return pool


def test_a_change_is_refused_when_another_process_has_gated_the_pool_meanwhile(redis_side: Side) -> None:
    for change, ask in CHANGES.items():
        pool = opened_again(redis_side, opened(redis_side), gated=True)
        sentence = rf"^pool '{pool.sku}' is gated: use Pool\(store, sku, gate=gate\) to {change} it"
        with pytest.raises(ChangeGated, match=sentence) as caught:
            ask(pool)
        assert (caught.value.sku, caught.value.change) == (pool.sku, change)
        state = pool.state()
        assert (state.sequence, state.available, state.segment_count) == (1, 6, 2), change


@pytest.fixture
def upkeep_pool(side: Side) -> Pool:
    """One of eight units sold, and two restocked: four changes."""
    upkeep_pool = side.pool(side.name())
    upkeep_pool.open(stock=8, segments=2)
    upkeep_pool.reserve("sold")
    upkeep_pool.confirm("sold")
    upkeep_pool.restock(2, restock_id="r1")
    return upkeep_pool


def test_what_was_oversold_or_refused_wrongly_is_told_although_no_repair_can_mend_it(
    upkeep_pool: Pool, side: Side
) -> None:
    side.execute(op.MendNumber(upkeep_pool.sku, "total", "available", 4, 1))
    upkeep_pool.grant("refused", quantity=2, timeout=0, keep_refusal=True)
    side.execute(op.MendNumber(upkeep_pool.sku, "total", "available", 6, 9))
    side.execute(op.MendNumber(upkeep_pool.sku, "total", "confirmed", 7, 15))
    report = upkeep_pool.audit()
    assert (report.refused_wrongly, report.oversold) == (1, 5)
    told = upkeep_pool.repair(report, yes=False).repairs
    assert [(repair.kind, repair.order_id) for repair in told[-2:]] == [
        ("refused wrongly", "refused"),
        ("oversold", None),
    ]
    done = upkeep_pool.repair(report, yes=True)
    assert [(repair.kind, repair.order_id, repair.is_done) for repair in done.repairs][-1] == (
        "refused wrongly",
        "refused",
        False,
    )
    assert (done.after.drift, done.after.oversold, done.is_clean) == ((), 0, False)


@pytest.fixture(params=[False, True], ids=["in one slot", "in shards"])
def asked_pool(side: Side, request: pytest.FixtureRequest) -> Any:  # noqa: ANN401  # a Pool or a ShardedPool
    """Nine units, with one order for each way to end."""
    name = side.name()
    make: Any = sharded if request.param else type(side).pool
    asked_pool = make(side, name)
    asked_pool.open(stock=9, segments=4, **({"shards": 2} if request.param else {}))
    make(side, name, ttl=BRIEF, hold=BRIEF).reserve("expired")
    let_hold_end(asked_pool, side)
    asked_pool.reserve_many([Order("sold"), Order("cancelled"), Order("open")])
    asked_pool.confirm("sold")
    asked_pool.cancel("cancelled")
    return asked_pool


def let_hold_end(asked_pool: Any, side: Side) -> None:  # noqa: ANN401  # as above
    side.pass_time(2 * BRIEF)
    assert [one.state for one in asked_pool.expire()] == ["expired"]


def asked_totals(asked_pool: Any) -> tuple[int, int, int]:  # noqa: ANN401  # as above
    state = asked_pool.state()
    return state.available, state.reserved, state.confirmed


def test_an_order_whose_units_are_back_is_not_confirmed(asked_pool: Any) -> None:  # noqa: ANN401  # as above
    for state in ("cancelled", "expired"):
        sentence = rf"^order '{state}' is already {state}: it cannot be confirmed$"
        with pytest.raises(AlreadySettled, match=sentence) as caught:
            asked_pool.confirm(state)
        settled = caught.value.settled
        assert isinstance(settled, Settled)
        assert (caught.value.state, settled.order_id, settled.replay) == (state, state, True)
        again = asked_pool.cancel(state)
        assert (again.state, again.replay) == (state, True)
    assert asked_totals(asked_pool) == (7, 1, 1)


def test_in_a_batch_the_error_takes_the_answers_place(asked_pool: Any) -> None:  # noqa: ANN401  # as above
    ids = ["sold", "cancelled", "expired", "open"]
    ends = [[(type(one), one.state) for one in end(ids)] for end in (asked_pool.confirm_many, asked_pool.cancel_many)]
    states = ["confirmed", "cancelled", "expired", "confirmed"]
    kinds = [[Settled, AlreadySettled, AlreadySettled, Settled], [AlreadySettled, Settled, Settled, AlreadySettled]]
    assert ends == [list(zip(kind, states, strict=True)) for kind in kinds]
    assert asked_totals(asked_pool) == (7, 0, 2)


def test_a_cancel_by_the_wrong_holder_changes_nothing(asked_pool: Any) -> None:  # noqa: ANN401  # as above
    grant = asked_pool.grant("a", timeout=0)
    sentence = rf"^grant for order 'a' is superseded by fencing token {grant.fencing_token}$"
    with pytest.raises(GrantSuperseded, match=sentence):
        asked_pool.cancel("a", holder_id="another")
    assert asked_totals(asked_pool) == (6, 2, 1)


def test_a_hold_that_ends_while_the_body_runs_loses_the_grant(side: Side) -> None:
    asked_pool = side.pool(side.name(), ttl=BRIEF, hold=BRIEF)
    asked_pool.open(stock=8, segments=2)
    grant: Any = asked_pool.grant("a", quantity=3, timeout=0)
    sentence = "^order 'a' is not sold: its hold ended while the body ran, and its units went back$"
    with pytest.raises(GrantLost, match=sentence) as caught, grant:
        let_hold_end(asked_pool, side)
    assert isinstance(caught.value, LeaseError)
    assert isinstance(caught.value.__cause__, AlreadySettled)
    assert asked_totals(asked_pool) == (8, 0, 0)


@pytest.mark.parametrize("end", ["confirm", "cancel"])
def test_a_grant_runs_one_body_and_none_after_its_end(side: Side, end: str) -> None:
    asked_pool = side.pool(side.name())
    asked_pool.open(stock=8, segments=2)
    grant: Any = asked_pool.grant("a", timeout=0)
    getattr(grant, end)()
    sentence = r"^the grant of order 'a' has ended: ask for the order again"
    with pytest.raises(InvalidInput, match=sentence), grant:
        pytest.fail("the body ran")


def test_the_end_of_the_body_does_not_confirm_in_a_gated_pool(side: Side) -> None:
    pool = side.pool(side.name())
    pool.open(stock=8, segments=2, gated=True)
    said = rf"^pool '{pool.sku}' is gated: its order database must store order 'a' first; use Pool\(store, sku, gate="
    with pytest.raises(PoolGated, match=said), granted(pool, "a", quantity=3):
        pytest.fail("the body ran")
    assert totals(pool) == (5, 3, 0)
    confirmed = side.execute(op.Confirm(pool.sku, "a", decided=True))
    assert (confirmed.state, totals(pool)) == ("confirmed", (5, 0, 3))
    assert pool.audit().is_clean


def test_a_gated_pool_does_not_expire_by_itself(side: Side) -> None:
    pool = side.pool(side.name(), ttl=BRIEF, hold=BRIEF)
    pool.open(stock=8, segments=2, gated=True)
    pool.reserve("a")
    side.pass_time(2 * BRIEF)
    with pytest.raises(PoolGated):
        pool.expire()
    assert totals(pool) == (7, 1, 0)


def test_a_stock_or_segment_count_that_no_pool_can_have_is_rejected(memory: Side) -> None:
    for stock, segments in ((0, 1), (-1, 1), (10**12 + 1, 1), (5, 0), (5, -1), (5, 4_097)):
        with pytest.raises(InvalidInput, match=r"must be between 1 and [\d,]+$"):
            memory.pool("never made").open(stock=stock, segments=segments)
    with pytest.raises(InvalidInput, match=r"^sku '' must have 1 to 128 bytes of UTF-8$"):
        memory.pool("")


def test_a_confirmation_is_refused_when_the_pool_was_gated_meanwhile(redis_side: Side) -> None:
    pool = opened_again(redis_side, opened(redis_side), gated=True)
    pool.reserve("a")
    for call in (lambda: pool.confirm("a"), pool.expire):
        with pytest.raises(PoolGated):
            call()
    assert [type(answer) for answer in pool.confirm_many(["a"])] == [PoolGated]


@pytest.mark.parametrize("is_sharded", [False, True])
def test_an_order_may_have_a_hold_of_its_own(side: Side, *, is_sharded: bool) -> None:
    name = side.name()
    if is_sharded:
        sharded(side, name).open(stock=8, segments=2, shards=2)
    else:
        side.pool(name).open(stock=8, segments=2)
    pool: Any = sharded(side, name) if is_sharded else side.pool(name)
    before = pool.reserve("a").hold_until_ms
    assert pool.reserve("b", hold=1_200).hold_until_ms >= before + 600_000
    assert pool.reserve("c", hold=0.5).hold_until_ms < before - 500_000
    with pytest.raises(InvalidInput):
        pool.reserve("d", hold=0)
