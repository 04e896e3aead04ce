"""Orders cancelled because their caller was gone: nobody got their answers, so their ids can be used again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import OrderQueued
from segmented.models import Granted, Order, Reserved, Settled
from segmented.models.submitted import Queued
from tests.support.contract.orders.submitting import begin_and_die, begun, named, queue, take
from tests.support.contract.pools.merged import Run, Watched, until
from tests.support.contract.pools.shop import LONG_MS

if TYPE_CHECKING:
    from segmented.stock import AsyncPool
    from tests.support.contract.pools.shop import Shop


def undo(shop: Shop, *order_ids: str) -> list[str | None]:
    answers = shop.side.execute(op.SettleMany(shop.sku, "cancelled", order_ids, unheard=True))
    return [getattr(answer, "state", None) for answer in answers]


def test_an_undone_order_is_cancelled_and_can_be_reserved_again_with_any_content(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserved("a", 4)
    assert undo(shop, "a", "a") == ["cancelled", "cancelled"]
    assert shop.cancel("a") == Settled("a", "cancelled", 4, 1, None, 3, replay=True)
    again = shop.reserved("a", 2)
    assert (again.quantity, again.sequence, again.replay) == (2, 4, False)
    assert shop.reserved("a", 2).replay
    assert shop.confirm("a").quantity == 2
    assert shop.totals() == (7, 0, 2)
    assert shop.story() == [
        ("opened", None),
        ("reserved", "a"),
        ("cancelled", "a"),
        ("reserved", "a"),
        ("confirmed", "a"),
    ]


def test_a_grant_is_undone_by_its_holder_and_the_order_is_granted_to_another(shop: Shop) -> None:
    shop.open(9, 1)
    shop.granted("a", 4, holder_id="gone")
    assert isinstance(shop.side.execute(op.Cancel(shop.sku, "a", "gone", unheard=True)), Settled)
    granted = shop.grant("a", 4, holder_id="next")
    assert isinstance(granted, Granted)
    assert (granted.replay, granted.holder_id) == (False, "next")
    assert shop.totals() == (5, 4, 0)


def test_an_undone_order_is_submitted_to_workers_as_if_for_the_first_time(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserved("a", 4)
    undo(shop, "a")
    assert queue(shop, Order("a", 4), Order("a", 4), after_ms=0) == (
        Queued("a", replay=False),
        Queued("a", replay=True),
    )
    (found,) = shop.side.execute(op.ReadSubmitted(shop.sku, ("a",)))
    assert (found.state, found.record, found.order) == ("queued", None, Order("a", 4))
    assert named(queue(shop, Order("a", 5))) == ["OrderMismatch"]
    swept = shop.side.execute(op.SweepOutbox(shop.sku, 10, None, 0, 0, LONG_MS, 5))
    assert getattr(swept, "due", None) == (("a", 0),)
    with pytest.raises(OrderQueued):
        shop.confirm("a")
    order = begun(shop, "a")
    assert (order.quantity, order.begun, shop.totals()) == (4, 1, (5, 4, 0))
    shop.side.execute(op.PutOff(shop.sku, ("a",), "w1", 0, counts=False, begun_max=5, reason="not now"))
    assert begun(shop, "a", holder="w2").begun == 1
    shop.confirm("a")
    assert shop.totals() == (5, 0, 4)
    shop.check_books()


def test_an_undone_order_that_is_queued_again_is_cancelled_or_refused_or_dead(shop: Shop) -> None:
    shop.open(4, 1)
    for order_id in ("cancelled", "refused", "dead"):
        shop.reserved(order_id, 1)
        undo(shop, order_id)
    queue(shop, Order("cancelled", 1), Order("refused", 1), Order("dead", 1))
    assert getattr(shop.cancel("cancelled"), "state", None) == "cancelled"
    shop.reserved("all", 4)
    assert named(take(shop, "refused").orders) == ["Settled"]
    shop.cancel("all")
    begin_and_die(shop, "dead")
    shop.side.execute(op.PutOff(shop.sku, ("dead",), "dead 0", 0, counts=True, begun_max=1, reason="again and again"))
    assert named(shop.side.execute(op.ReplayDead(shop.sku, ("dead",)))) == ["Replayed"]
    begun(shop, "dead")
    shop.check_books()


def test_a_cancelled_order_stays_cancelled(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserved("a", 4)
    shop.cancel("a")
    assert undo(shop, "a") == ["cancelled"]
    assert getattr(shop.reserve("a", 4), "state", None) == "cancelled"


def test_a_reservation_whose_caller_timed_out_leaves_the_id_usable(run: Run) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        for number in range(3):
            store.hold()
            store.batches.clear()
            call = asyncio.create_task(pool.reserve(f"o{number}", quantity=3))
            await until(lambda: store.batches == [1])
            call.cancel()  # as asyncio.timeout does
            store.let_go()
            await until(lambda: (f"o{number}",) in store.cancelled)  # noqa: B023  # awaited here
            answer = await pool.reserve(f"o{number}", quantity=3)
            assert isinstance(answer, Reserved)
            assert not answer.replay
            assert (await pool.confirm(f"o{number}")).state == "confirmed"
        assert (await pool.state()).confirmed == 9

    run(scenario)
