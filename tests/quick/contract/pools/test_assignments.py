"""A pool names the queue and the step of the workers that take its submitted orders; no other worker decides them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented import protocol as op
from segmented.errors import AssignedElsewhere, InvalidInput, PoolDiffers, PoolFrozen, PoolMissing
from segmented.models import UNASSIGNED, AlreadyOpen, Assigned, Assignment, Order, Settled
from segmented.models.submitted import BegunOrder, Swept
from tests.support.contract.orders.submitting import outbox, queue, submit, submitted
from tests.support.contract.pools.shop import LONG_MS, Shop
from tests.support.contract.shards.sharding import sharded

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.stores import Side

STEP = "shop.steps:charge"
CONCERTS = Assignment("concerts", STEP)
OTHERS = {
    "another queue": Assignment("mugs", STEP),
    "no step": Assignment("concerts"),
    "another step": Assignment("concerts", "shop.steps:pack"),
    "neither": UNASSIGNED,
}
WORK: dict[str, Callable[[Shop, Assignment], Any]] = {
    "take": lambda shop, worker: shop.side.execute(
        op.TakeOrders(shop.sku, ("a", "q"), "w", LONG_MS, LONG_MS, LONG_MS, 5, assignment=worker)
    ),
    "sweep": lambda shop, worker: shop.side.execute(op.SweepOutbox(shop.sku, 10, 7, 1, 1, LONG_MS, 5, worker)),
    "confirm": lambda shop, worker: shop.side.execute(
        op.SettleMany(shop.sku, "confirmed", ("a", "q"), idle=True, assignment=worker)
    ),
    "check": lambda shop, worker: shop.side.execute(op.CheckAssignment(shop.sku, worker)),
}


@pytest.fixture(params=[None, 2], ids=["in one slot", "in shards"])
def opened(side: Side, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """A call that opens a pool; returns the pool and the answer."""
    shards = {} if request.param is None else {"shards": request.param}
    made: Any = (type(side).pool if request.param is None else sharded)(side, side.name())

    def open_it(**names: Any) -> tuple[Any, Any]:  # noqa: ANN401  # right or wrong
        return made, made.open(stock=9, segments=4, **shards, **names)

    return open_it


def named(pool: Any) -> tuple[str | None, str | None]:  # noqa: ANN401  # a Pool or a ShardedPool
    state = pool.state()
    (found,) = {(one.queue, one.step) for one in (state, *getattr(state, "shards", ()))}
    return found


@pytest.fixture
def concert(side: Side) -> Shop:
    """A pool that names both, with an order whose units are taken and a queued one."""
    shop = Shop(side, side.name())
    side.execute(op.OpenPool(shop.sku, 10, 2, gated=False, assignment=CONCERTS))
    submit(shop, Order("a", 2), after_ms=0)
    queue(shop, Order("q", 3), after_ms=0)
    side.pass_time(0.002)
    return shop


# --- opening, and changing ---


def test_a_pool_keeps_the_queue_and_the_step_that_it_was_opened_with(opened: Callable[..., Any]) -> None:
    pool, answer = opened(queue="concerts", step=STEP)
    assert (answer.state.queue, answer.state.step) == named(pool) == ("concerts", STEP)
    assert [type(opened(**names)[1]) for names in ({}, {"step": STEP})] == [AlreadyOpen] * 2
    with pytest.raises(PoolDiffers) as caught:
        opened(queue="mugs", step="s:f")
    assert caught.value.differing == ("queue concerts instead of mugs", f"step {STEP} instead of s:f")
    assert named(pool) == ("concerts", STEP)


def test_the_names_change_while_the_pool_sells_and_a_repeat_says_so(opened: Callable[..., Any]) -> None:
    pool, _ = opened()
    assert named(pool) == (None, None)
    before = pool.state().sequence
    pool.assign(queue="concerts", step=STEP)
    answers = [pool.assign(queue="tickets", step=None) for _ in range(2)]
    assert [(type(one), one.replay, one.state.queue, one.state.step) for one in answers] == [
        (Assigned, False, "tickets", None),
        (Assigned, True, "tickets", None),
    ]
    assert named(pool) == ("tickets", None)
    pool.assign(queue=None, step=None)
    assert named(pool) == (None, None)
    assert (pool.state().sequence, pool.audit().is_clean) == (before, True)  # none is a change of the stock


NO_NAMES: dict[str, dict[str, Any]] = {
    "queue '' must have 1 to 200 bytes of UTF-8": {"queue": ""},
    r"queue 'a\\nb' has characters that cannot be printed": {"queue": "a\nb"},
    "queue 5 is not text": {"queue": 5},
    r"step 'charge' should be module:function, as SEGMENTED_STEP names it": {"step": "charge"},
    r"step 's:c+'\.\.\. must have 1 to 200 bytes of UTF-8": {"step": "s:" + "c" * 199},
}


def test_a_name_that_cannot_be_is_refused_before_anything_is_asked(opened: Callable[..., Any], side: Side) -> None:
    with pytest.raises(PoolMissing):
        side.pool(side.name()).assign(queue="concerts", step=None)
    for sentence, names in NO_NAMES.items():
        with pytest.raises(InvalidInput, match=f"^{sentence}$"):
            opened(**names)
    pool, answer = opened()
    assert type(answer) is not AlreadyOpen
    for sentence, names in NO_NAMES.items():
        with pytest.raises(InvalidInput, match=f"^{sentence}$"):
            pool.assign(**({"queue": None, "step": None} | names))


def test_the_names_outlive_a_thaw(concert: Shop) -> None:
    concert.side.execute(op.FreezePool(concert.sku, 1))
    with pytest.raises(PoolFrozen):
        concert.side.execute(op.AssignPool(concert.sku, UNASSIGNED))
    concert.side.execute(op.ThawPool(concert.sku, 2, 0))
    state = concert.state()
    assert (state.queue, state.step, state.epoch) == ("concerts", STEP, 2)


# --- who may take the orders ---


def test_a_worker_that_the_pool_does_not_name_decides_nothing(concert: Shop) -> None:
    def found() -> list[object]:
        both = [submitted(concert, order_id) for order_id in "aq"]
        begun = [(one.state, one.begun, one.published) for one in both]
        return [concert.state(), outbox(concert).waiting, *begun]

    before = found()
    assert before[1:] == [2, ("reserved", 0, 0), ("queued", 0, 0)]
    for whose, worker in OTHERS.items():
        for name, work in WORK.items():
            with pytest.raises(
                AssignedElsewhere, match=r"workers of queue 'concerts' with step 'shop.steps:charge'"
            ) as e:
                work(concert, worker)
            assert (e.value.sku, e.value.queue, e.value.step) == (concert.sku, "concerts", STEP), (whose, name)
            assert found() == before, (whose, name)


def test_the_worker_that_the_pool_names_takes_sweeps_and_confirms(concert: Shop) -> None:
    swept = WORK["sweep"](concert, CONCERTS)
    assert isinstance(swept, Swept)
    assert sorted(swept.due) == [("a", 0), ("q", 0)]
    assert WORK["check"](concert, CONCERTS) is None
    (done, _) = WORK["confirm"](concert, CONCERTS)
    assert (type(done), done.state) == (Settled, "confirmed")
    assert [type(one) for one in WORK["take"](concert, CONCERTS).orders] == [Settled, BegunOrder]


def test_what_a_pool_does_not_name_may_be_anything(concert: Shop) -> None:
    for names, worker in (
        (UNASSIGNED, UNASSIGNED),
        (UNASSIGNED, CONCERTS),
        (Assignment("concerts"), CONCERTS),
        (Assignment("concerts"), Assignment("concerts")),
        (Assignment(step=STEP), CONCERTS),
        (Assignment(step=STEP), Assignment("mugs", STEP)),
    ):
        concert.side.execute(op.AssignPool(concert.sku, names))
        for work in WORK.values():
            work(concert, worker)


def test_a_frozen_pool_of_other_workers_is_theirs_to_recover(concert: Shop) -> None:
    concert.side.execute(op.FreezePool(concert.sku, 1))
    for work in WORK.values():
        with pytest.raises(AssignedElsewhere):
            work(concert, UNASSIGNED)
    with pytest.raises(PoolFrozen):
        WORK["sweep"](concert, CONCERTS)


def test_its_owner_still_confirms_and_cancels_its_orders_itself(concert: Shop) -> None:
    settled = concert.side.execute(op.SettleMany(concert.sku, "confirmed", ("a",)))
    assert [one.state for one in settled if isinstance(one, Settled)] == ["confirmed"]
    assert concert.side.pool(concert.sku).cancel("q").state == "cancelled"


def test_a_pool_of_an_earlier_release_names_nobody(redis_side: Side) -> None:
    shop = Shop(redis_side, redis_side.name())
    shop.open(10, 2)
    meta = redis_side.raw().hgetall(shop.keys.meta)
    assert not {name for name in meta if name in {"queue", "step", b"queue", b"step"}}
    submit(shop, Order("a", 2), after_ms=0)
    assert WORK["confirm"](shop, UNASSIGNED)[0].state == "confirmed"


def test_a_queue_that_another_program_overwrote_is_nobodys(redis_side: Side) -> None:
    shop = Shop(redis_side, redis_side.name())
    redis_side.execute(op.OpenPool(shop.sku, 10, 2, gated=False, assignment=Assignment("concerts")))
    submit(shop, Order("a", 2), after_ms=0)
    for said in (b"\xff", b"mugs ", b"concerts\x00"):
        redis_side.raw().hset(shop.keys.meta, "queue", said)
        for work in WORK.values():
            with pytest.raises(AssignedElsewhere):
                work(shop, Assignment("concerts"))
        assert shop.state().queue == said.decode(errors="replace")
