"""A pool names the queue and the step of the workers that take its submitted orders; no other worker decides them."""

from __future__ import annotations

from functools import partial
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
def shards(request: pytest.FixtureRequest) -> Any:  # noqa: ANN401  # a number, or None
    return request.param


@pytest.fixture
def pool(waiting_side: Side, shards: int | None) -> Any:  # noqa: ANN401  # a Pool or a ShardedPool
    """A pool that is not open yet."""
    make: Any = type(waiting_side).pool if shards is None else sharded
    return make(waiting_side, waiting_side.name())


@pytest.fixture
def opened(pool: Any, shards: int | None) -> Callable[..., Any]:  # noqa: ANN401  # as above
    """A call that opens it."""
    return partial(pool.open, stock=9, segments=4, **({} if shards is None else {"shards": shards}))


def named(pool: Any) -> tuple[str | None, str | None]:  # noqa: ANN401  # as above
    state = pool.state()
    parts = getattr(state, "shards", (state,))
    (found,) = {(one.queue, one.step) for one in (state, *parts)}
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


def test_a_pool_keeps_the_queue_and_the_step_that_it_was_opened_with(pool: Any, opened: Callable[..., Any]) -> None:  # noqa: ANN401  # as above
    answer = opened(queue="concerts", step=STEP)
    assert (answer.state.queue, answer.state.step) == named(pool) == ("concerts", STEP)


def test_a_pool_that_names_neither_leaves_its_orders_to_any_worker(pool: Any, opened: Callable[..., Any]) -> None:  # noqa: ANN401  # as above
    opened()
    assert named(pool) == (None, None)


def test_opening_again_without_names_changes_nothing(pool: Any, opened: Callable[..., Any]) -> None:  # noqa: ANN401  # as above
    opened(queue="concerts", step=STEP)
    assert type(opened()) is AlreadyOpen
    assert type(opened(step=STEP)) is AlreadyOpen
    assert named(pool) == ("concerts", STEP)


def test_opening_again_with_other_names_is_refused_and_says_both(pool: Any, opened: Callable[..., Any]) -> None:  # noqa: ANN401  # as above
    opened(queue="concerts")
    with pytest.raises(PoolDiffers) as caught:
        opened(queue="mugs", step=STEP)
    assert caught.value.differing == ("queue concerts instead of mugs", f"step none instead of {STEP}")
    assert named(pool) == ("concerts", None)


def test_the_names_change_while_the_pool_sells_and_a_repeat_says_so(pool: Any, opened: Callable[..., Any]) -> None:  # noqa: ANN401  # as above
    opened(queue="concerts", step=STEP)
    answers = [pool.assign(queue="tickets", step=None) for _ in range(2)]
    assert [(type(one), one.replay, one.state.queue, one.state.step) for one in answers] == [
        (Assigned, False, "tickets", None),
        (Assigned, True, "tickets", None),
    ]
    assert named(pool) == ("tickets", None)
    pool.assign(queue=None, step=None)
    assert named(pool) == (None, None)


def test_a_change_of_names_is_no_change_of_the_stock(pool: Any, opened: Callable[..., Any]) -> None:  # noqa: ANN401  # as above
    opened()
    before = pool.state().sequence
    pool.assign(queue="concerts", step=STEP)
    assert (pool.state().sequence, pool.audit().is_clean) == (before, True)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ({"queue": ""}, "queue '' must have 1 to 200 bytes of UTF-8"),
        ({"queue": "a\nb"}, r"queue 'a\\nb' has characters that cannot be printed"),
        ({"queue": 5}, "queue 5 is not text"),
        ({"step": "charge"}, "step 'charge' should be module:function, as SEGMENTED_STEP names it"),
        ({"step": "s:" + "c" * 199}, r"step 's:c+'\.\.\. must have 1 to 200 bytes of UTF-8"),
    ],
)
def test_a_name_that_cannot_be_is_refused_before_anything_is_asked(
    pool: Any,  # noqa: ANN401  # as above
    opened: Callable[..., Any],
    names: dict[str, Any],
    sentence: str,
) -> None:
    with pytest.raises(InvalidInput, match=f"^{sentence}$"):
        opened(**names)
    with pytest.raises(PoolMissing):
        pool.state()
    opened()
    with pytest.raises(InvalidInput, match=f"^{sentence}$"):
        pool.assign(**({"queue": None, "step": None} | names))


def test_a_pool_that_is_not_open_gets_no_names(pool: Any) -> None:  # noqa: ANN401  # as above
    with pytest.raises(PoolMissing):
        pool.assign(queue="concerts", step=None)


def test_the_names_outlive_a_thaw(side: Side) -> None:
    shop = Shop(side, side.name())
    side.execute(op.OpenPool(shop.sku, 10, 2, gated=False, assignment=CONCERTS))
    shop.reserved("a")
    side.execute(op.FreezePool(shop.sku, 1))
    with pytest.raises(PoolFrozen):
        side.execute(op.AssignPool(shop.sku, UNASSIGNED))
    side.execute(op.ThawPool(shop.sku, 2, 0))
    state = shop.state()
    assert (state.queue, state.step, state.epoch) == ("concerts", STEP, 2)


# --- who may take the orders ---


@pytest.mark.parametrize("worker", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("work", WORK)
def test_a_worker_that_the_pool_does_not_name_decides_nothing(concert: Shop, work: str, worker: Assignment) -> None:
    before = concert.state(), outbox(concert), submitted(concert, "a"), submitted(concert, "q")
    with pytest.raises(AssignedElsewhere) as caught:
        WORK[work](concert, worker)
    assert (caught.value.sku, caught.value.queue, caught.value.step) == (concert.sku, "concerts", STEP)
    assert str(caught.value) == (
        f"pool {concert.sku!r} leaves its submitted orders to workers of queue 'concerts' with step "
        "'shop.steps:charge', and this is none of them: start such a worker (SEGMENTED_QUEUE, SEGMENTED_STEP), or "
        f"name others with 'segmented pool assign {concert.sku}'"
    )
    after = concert.state(), outbox(concert), submitted(concert, "a"), submitted(concert, "q")
    assert [one.waiting for one in (before[1], after[1])] == [2, 2]
    assert (before[0], [one.state for one in before[2:]]) == (after[0], [one.state for one in after[2:]])
    assert [(one.begun, one.published) for one in after[2:]] == [(0, 0), (0, 0)]


def test_the_worker_that_the_pool_names_takes_sweeps_and_confirms(concert: Shop) -> None:
    swept = WORK["sweep"](concert, CONCERTS)
    assert isinstance(swept, Swept)
    assert sorted(swept.due) == [("a", 0), ("q", 0)]
    assert WORK["check"](concert, CONCERTS) is None
    (done, _) = WORK["confirm"](concert, CONCERTS)
    assert (type(done), done.state) == (Settled, "confirmed")
    assert [type(one) for one in WORK["take"](concert, CONCERTS).orders] == [Settled, BegunOrder]


@pytest.mark.parametrize(
    ("names", "worker"),
    [
        (UNASSIGNED, UNASSIGNED),
        (UNASSIGNED, CONCERTS),
        (Assignment("concerts"), CONCERTS),
        (Assignment("concerts"), Assignment("concerts")),
        (Assignment(step=STEP), CONCERTS),
        (Assignment(step=STEP), Assignment("mugs", STEP)),
    ],
)
@pytest.mark.parametrize("work", WORK)
def test_what_a_pool_does_not_name_may_be_anything(
    concert: Shop, work: str, names: Assignment, worker: Assignment
) -> None:
    concert.side.execute(op.AssignPool(concert.sku, names))
    WORK[work](concert, worker)


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


@pytest.mark.parametrize("said", [b"\xff", b"mugs ", b"concerts\x00"])
def test_a_queue_that_another_program_overwrote_is_nobodys(redis_side: Side, said: bytes) -> None:
    shop = Shop(redis_side, redis_side.name())
    redis_side.execute(op.OpenPool(shop.sku, 10, 2, gated=False, assignment=Assignment("concerts")))
    submit(shop, Order("a", 2), after_ms=0)
    redis_side.raw().hset(shop.keys.meta, "queue", said)
    for work in WORK.values():
        with pytest.raises(AssignedElsewhere):
            work(shop, Assignment("concerts"))
    assert shop.state().queue == said.decode(errors="replace")
