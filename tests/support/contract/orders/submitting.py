"""Short calls for what is submitted to the pool under test."""

from collections.abc import Iterable
from typing import Any

from segmented import protocol as op
from segmented.errors import SegmentedError
from segmented.models import Closed, Decided, Order, Reserved, Settled, Taken
from segmented.models.submitted import (
    BegunOrder,
    DeadOrder,
    OutboxState,
    Queued,
    Replayed,
    Submitted,
    SweepSuperseded,
    Swept,
    TakenOrders,
)
from tests.support.contract.pools.shop import LONG_MS, Shop

BEGUN_MAX = 5


def named(answers: Iterable[object]) -> list[str]:
    return [type(answer).__name__ for answer in answers]


def orders(count: int, quantity: int = 1) -> list[Order]:
    return [Order(f"o{number:02}", quantity) for number in range(count)]


def submit(
    shop: Shop, *wanted: Order, hold_ms: int = LONG_MS, after_ms: int = LONG_MS
) -> tuple[Taken | SegmentedError, ...]:
    """Submit orders whose units are taken now."""
    return shop.side.execute(op.ReserveMany(shop.sku, wanted, hold_ms, publish_after_ms=after_ms))


def queue(
    shop: Shop, *wanted: Order, after_ms: int = LONG_MS
) -> tuple[Queued | Reserved | Decided | Closed | SegmentedError, ...]:
    """Submit orders whose units a worker takes."""
    return shop.side.execute(op.QueueOrders(shop.sku, wanted, after_ms))


def take(
    shop: Shop,
    *order_ids: str,
    holder: str = "w1",
    ttl_ms: int = LONG_MS,
    hold_ms: int = LONG_MS,
    work_ms: int = LONG_MS,
    begun_max: int = BEGUN_MAX,
) -> TakenOrders:
    return shop.side.execute(op.TakeOrders(shop.sku, order_ids, holder, ttl_ms, hold_ms, work_ms, begun_max))


def begun(
    shop: Shop, order_id: str, *, holder: str = "w1", ttl_ms: int = LONG_MS, work_ms: int = LONG_MS
) -> BegunOrder:
    """Take one order, where anything else would be a mistake of the test."""
    (answer,) = take(shop, order_id, holder=holder, ttl_ms=ttl_ms, work_ms=work_ms).orders
    assert isinstance(answer, BegunOrder), answer
    return answer


def begin_and_die(shop: Shop, *order_ids: str, times: int = 1) -> None:
    """Begin orders as workers that die at once, and wait until their time is over."""
    for number in range(times):
        take(shop, *order_ids, holder=f"dead {number}", ttl_ms=1, work_ms=1)
        shop.side.pass_time(0.003)


def put_off(
    shop: Shop,
    *order_ids: str,
    holder: str = "w1",
    delay_ms: int = LONG_MS,
    counts: bool = True,
    begun_max: int = BEGUN_MAX,
    reason: str = "it rained",
    hold_ms: int = LONG_MS,
) -> int:
    return shop.side.execute(op.PutOff(shop.sku, order_ids, holder, delay_ms, counts, begun_max, reason, hold_ms))


def renew_work(shop: Shop, *order_ids: str, holder: str = "w1", work_ms: int = LONG_MS) -> tuple[str, ...]:
    return shop.side.execute(op.RenewWork(shop.sku, order_ids, holder, LONG_MS, LONG_MS, work_ms))


def confirm(shop: Shop, *order_ids: str, holder: str | None = "w1", stored: bool = False) -> tuple[Any, ...]:
    return shop.side.execute(op.SettleMany(shop.sku, "confirmed", order_ids, decided=stored, holder_id=holder))


def sweep(
    shop: Shop,
    *,
    limit: int = 1_000,
    token: int | None = None,
    base_ms: int = LONG_MS,
    most_ms: int = LONG_MS,
    hold_ms: int = LONG_MS,
    begun_max: int = BEGUN_MAX,
) -> Swept | SweepSuperseded:
    return shop.side.execute(op.SweepOutbox(shop.sku, limit, token, base_ms, most_ms, hold_ms, begun_max))


def submitted(shop: Shop, order_id: str) -> Submitted:
    return shop.side.execute(op.ReadSubmitted(shop.sku, (order_id,)))[0]


def outbox(shop: Shop) -> OutboxState:
    return shop.side.execute(op.ReadOutbox(shop.sku))


def waiting(shop: Shop) -> int:
    return outbox(shop).waiting


def dead(shop: Shop) -> list[DeadOrder]:
    _, found = shop.side.execute(op.ListDead(shop.sku, 0))
    return sorted(found, key=lambda one: one.order_id)


def replay(shop: Shop, *order_ids: str) -> tuple[Replayed | Settled | None, ...]:
    return shop.side.execute(op.ReplayDead(shop.sku, order_ids))


def buried(shop: Shop, order_id: str) -> None:
    """Bring a submitted order into the dead-letter set."""
    begun(shop, order_id, holder="undertaker")
    assert put_off(shop, order_id, holder="undertaker", begun_max=1) == 1
