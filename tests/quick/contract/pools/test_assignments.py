"""The workers that a pool names, ends that are owed, and refusals that are true."""

import asyncio
import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

import pytest

from segmented import AsyncPool, protocol as op
from segmented.clock import ManualClock
from segmented.errors import AssignedElsewhere, InvalidInput, PoolMissing
from segmented.models import UNASSIGNED, AlreadyOpen, Assigned, Assignment, Order, Reserved, Settled, SoldOut
from segmented.stock import AsyncGrant
from segmented.stock.fold import LedgerFold
from tests.fixtures.stores import Side
from tests.support.contract.orders.submitting import outbox, queue, submit, submitted
from tests.support.contract.pools.merged import Run, Watched
from tests.support.contract.pools.shop import LONG_MS, Shop
from tests.support.contract.shards.sharding import sharded

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


BUYERS: Final = 20
CALLS: Final = 20


async def buy(
    pools: list[AsyncPool], clock: ManualClock, chance: random.Random, names: Iterator[int], refused: list[SoldOut]
) -> None:
    """Reserve, grant, restock and cancel at random while time passes, and keep every refusal."""
    for _ in range(CALLS):
        clock.advance(0.0001)
        pool = chance.choice(pools)
        order, *others = (Order(f"o{next(names)}", chance.randint(1, 6)) for _ in range(5))
        match chance.randrange(4):
            case 0:
                answers: list[object] = [await pool.reserve(order, partial=chance.random() < 0.2)]
            case 1:
                answers = [*await pool.reserve_many(others, partial=chance.random() < 0.2)]
            case 2:
                answers = [await pool.grant(order, timeout=0, keep_refusal=chance.random() < 0.5)]
            case _:
                await pool.restock(chance.randint(1, 4), restock_id=f"r{next(names)}")
                continue
        refused += [answer for answer in answers if isinstance(answer, SoldOut)]
        for answer in answers:
            if isinstance(answer, AsyncGrant | Reserved) and chance.random() < 0.6:  # more come back than not
                await pool.cancel(answer.order_id)


@pytest.mark.parametrize("hold", [0.005, 600.0], ids=["holds that lapse", "holds that last"])
@pytest.mark.parametrize("mark", [0.0, 0.1], ids=["without a mark", "with a mark"])
def test_every_refusal_is_true_just_after_the_change_that_it_names(run: Run, hold: float, mark: float) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        refused: list[SoldOut] = []
        names = count()
        for seed in range(1):
            other = AsyncPool(store, pool.sku, ttl=0.005, hold=hold, sold_out_mark=mark)
            chance = random.Random(seed)
            await asyncio.gather(*(buy([pool, other], store.clock, chance, names, refused) for _ in range(BUYERS)))
        fold = LedgerFold()
        fold.apply([entry async for entry in pool.read_ledger()])
        assert len(refused) > 30
        assert [one for one in refused if fold.covers(one.quantity, one.sequence)] == []

    run(scenario)


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
