"""How orders end: confirmed, cancelled, expired, undone, and in another epoch."""

import asyncio
from typing import Any

import pytest

from segmented import protocol as op
from segmented.errors import (
    AlreadySettled,
    ChangeMismatch,
    EpochEnded,
    InvalidInput,
    OrderQueued,
    OrderUnknown,
    PoolDrifted,
    PoolGated,
    SegmentedError,
)
from segmented.models import Busy, Decided, LimitReached, Order, OrderRecord, Reserved, Returned, Settled
from segmented.models.submitted import Queued
from segmented.plans import Plan, perform
from segmented.stock import AsyncPool, Pool
from segmented.stock.plans import due_plan, expire_plan
from tests.fixtures.stores import Side
from tests.support.contract.interposed import asks, interposed
from tests.support.contract.orders.submitting import (
    begun,
    confirm,
    named,
    orders,
    queue,
    submit,
    submitted,
    take,
    waiting,
)
from tests.support.contract.pools.merged import Run, Watched, until
from tests.support.contract.pools.shop import LONG_MS, SHORT_MS, Shop, verified
from tests.support.contract.shards.sharding import check_all, sharded

TEN = [order.order_id for order in orders(10)]


def test_the_pool_is_sold_out_exactly(shop: Shop) -> None:
    shop.open(5, 2)
    queue(shop, *orders(8))
    answers = take(shop, *TEN[:8]).orders
    assert named(answers) == ["BegunOrder"] * 5 + ["Settled"] * 3
    assert answers[5] == Settled("o05", "refused", 1, -1, None, 3, replay=True)
    assert shop.totals() == (0, 5, 0)
    assert waiting(shop) == 5
    assert queue(shop, Order("o05", 1)) == (Decided("o05", "refused", 1, -1, None, 3, replay=True),)


def test_a_pool_that_was_closed_since_still_serves_what_it_accepted(shop: Shop) -> None:
    shop.open(9, 3)
    queue(shop, Order("a", 2))
    submit(shop, Order("b", 1))
    shop.close()
    assert named(take(shop, "a", "b").orders) == ["BegunOrder", "BegunOrder"]
    assert isinstance(shop.reserve("c"), Reserved) is False
    assert named(confirm(shop, "a", "b")) == ["Settled", "Settled"]
    assert shop.totals() == (6, 0, 3)


def test_a_customer_above_the_limit_is_refused_with_a_note_and_the_audit_stays_clean(shop: Shop) -> None:
    shop.open(9, 3, limit_per_customer=2)
    queue(shop, Order("a", 2, "ann"), Order("b", 1, "ann"), Order("c", 1, "bob"))
    assert named(take(shop, "a", "b", "c").orders) == ["BegunOrder", "Settled", "BegunOrder"]
    refused = [(entry.order_id, entry.note) for entry in shop.ledger() if entry.kind == "refused"]
    assert refused == [("b", "limit")]
    record = shop.record("b")
    assert isinstance(record, OrderRecord)
    assert (record.state, record.customer_id) == ("refused", "ann")
    shop.check_books()


def test_with_many_holds_due_an_order_is_told_to_ask_again_and_those_behind_it_wait(shop: Shop) -> None:
    shop.open(400, 4)
    shop.reserve_many((Order(f"late{number:03}", 2) for number in range(200)), hold_ms=0)
    queue(shop, Order("a", 400), Order("b", 1))
    answers = take(shop, "a", "b")
    for _ in range(20):
        if named(answers.orders) != ["Busy", "Busy"]:
            break
        assert all(isinstance(one, Busy) and not one.is_in_hand and one.free_in_ms == 0 for one in answers.orders)
        answers = take(shop, "a", "b")
    assert named(answers.orders) == ["BegunOrder", "Settled"]


def test_of_a_stock_that_was_written_to_from_outside_nothing_is_taken(plain_redis_side: Side) -> None:
    shop = Shop(plain_redis_side, plain_redis_side.name())
    shop.open(9, 3)
    queue(shop, Order("a", 4), Order("b", 1))
    plain_redis_side.raw().hset(shop.keys.stock, mapping=dict.fromkeys(range(3), 0))
    (drifted, other) = take(shop, "a", "b").orders
    assert isinstance(drifted, PoolDrifted)
    assert isinstance(other, PoolDrifted)
    assert (submitted(shop, "a").state, submitted(shop, "a").begun) == ("queued", 0)
    assert shop.state().sequence == 1
    assert plain_redis_side.raw().keys(f"{shop.keys.lock}:*") == []


def test_a_lapsed_hold_under_a_living_lease_does_not_expire(shop: Shop) -> None:
    shop.open(8, 2)
    shop.reserved("lives")
    token = shop.granted("a", 3, hold_ms=SHORT_MS).fencing_token
    shop.let_short_holds_lapse()
    assert (shop.expire("a"), shop.expire("lives")) == (None, None)
    shop.let_lease_lapse("a")
    assert shop.expire("a") == Settled("a", "expired", 3, 0, token, sequence=4, replay=False)


def test_due_orders_are_named_longest_lapsed_first(shop: Shop) -> None:
    shop.open(8, 2)
    for order_id in ("z", "m", "a"):
        shop.reserved(order_id, hold_ms=SHORT_MS)
        shop.side.pass_time(0.002)
    shop.reserved("not due")
    shop.let_short_holds_lapse()
    assert shop.due() == ("z", "m", "a")
    assert shop.due(limit=2) == ("z", "m")
    shop.confirm("m")
    assert shop.due() == ("z", "a")


def test_a_gated_pool_confirms_only_what_the_database_has_stored(shop: Shop) -> None:
    shop.open(8, 2, gated=True)
    token = shop.granted("a", 3).fencing_token
    with pytest.raises(
        PoolGated,
        match=r"its order database must store order 'a' first; use Pool",
    ) as caught:
        shop.confirm("a")
    assert (caught.value.sku, caught.value.order_id) == (shop.sku, "a")
    assert (shop.totals(), len(shop.ledger())) == ((5, 3, 0), 2)
    assert shop.confirm("a", stored=True) == Settled("a", "confirmed", 3, 0, token, 3, replay=False)
    assert shop.confirm("a") == Settled("a", "confirmed", 3, 0, token, 3, replay=True)
    assert shop.totals() == (5, 0, 3)


def expire_many(shop: Shop, *order_ids: str, voided: bool = False) -> tuple[Settled | SegmentedError | None, ...]:
    return shop.side.execute(op.SettleMany(shop.sku, "expired", order_ids, voided))


def test_every_order_of_a_batch_is_answered_in_its_place(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserve_many([Order("a", 2), Order("b", 1), Order("c", 3)])
    shop.cancel("b")
    first, unknown, before, again, last = shop.confirm_many("a", "nobody", "b", "a", "c")
    assert first == Settled("a", "confirmed", 2, 1, None, 4, replay=False)
    assert isinstance(unknown, OrderUnknown)
    assert unknown.order_id == "nobody"
    assert before == Settled("b", "cancelled", 1, 1, None, 3, replay=True)
    assert again == Settled("a", "confirmed", 2, 1, None, 4, replay=True)
    assert last == Settled("c", "confirmed", 3, 0, None, 4, replay=False)
    assert shop.totals() == (4, 0, 5)


def test_granted_orders_of_a_batch_free_their_segments_and_none_of_a_successor(shop: Shop) -> None:
    shop.open(9, 2)
    token = shop.granted("a", 2).fencing_token
    shop.granted("b", 2)
    assert not hasattr(shop.grant("c"), "segment")
    assert shop.confirm_many("a")[0] == Settled("a", "confirmed", 2, 0, token, 4, replay=False)
    assert shop.granted("c").segment == 0
    shop.let_lease_lapse("b")
    shop.granted("d")
    shop.confirm_many("b")
    assert not hasattr(shop.grant("e"), "segment")
    shop.cancel_many("c", "d")
    assert sorted(shop.granted(order_id).segment for order_id in "fg") == [0, 1]


@pytest.mark.parametrize("end", ["cancelled", "expired"])
def test_a_gated_pool_gives_back_only_what_was_voided(shop: Shop, end: str) -> None:
    shop.open(9, 3, gated=True)
    shop.reserve_many([Order("a", 2), Order("b", 1)], hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    settle = (
        shop.cancel_many if end == "cancelled" else lambda *ids, voided=False: expire_many(shop, *ids, voided=voided)
    )
    refused, unknown = settle("a", "nobody")
    assert isinstance(refused, PoolGated)
    assert (refused.sku, refused.order_id) == (shop.sku, "a")
    assert isinstance(unknown, OrderUnknown)
    assert shop.totals() == (6, 3, 0)
    assert [getattr(answer, "state", None) for answer in settle("a", "b", voided=True)] == [end, end]
    assert shop.totals() == (9, 0, 0)


def test_the_limit_bounds_a_step_and_the_answer_says_whether_more_are_due(shop: Shop) -> None:
    shop.open(50, 3)
    shop.reserve_many([Order(f"o{index:02}", 1) for index in range(25)], hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    steps = [shop.expire_due(10) for _ in range(3)]
    assert [(len(settled), is_more) for settled, is_more in steps] == [(10, True), (10, True), (5, False)]
    assert [one.order_id for settled, _ in steps for one in settled] == [f"o{index:02}" for index in range(25)]
    assert shop.totals() == (50, 0, 0)


def test_a_repeat_in_time_keeps_its_units(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserved("a", hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert isinstance(shop.reserve("a"), Reserved)
    assert (shop.expire_due(), shop.due()) == (((), False), ())


def test_a_shorter_hold_of_a_repeat_does_not_shorten_the_first(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserved("a")
    shop.reserve("a", hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert shop.expire_due() == ((), False)


def test_a_gated_pool_gives_nothing_back_by_itself(shop: Shop) -> None:
    shop.open(9, 3, gated=True)
    shop.reserved("a", hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    with pytest.raises(
        PoolGated,
        match=rf"^pool '{shop.sku}' is gated: .* must void what is due first; use Pool",
    ):
        shop.expire_due()
    assert shop.totals() == (8, 1, 0)


def test_a_due_hold_whose_lease_lives_is_left_alone_and_its_units_are_not_sold_again(shop: Shop) -> None:
    shop.open(5, 1)
    shop.granted("a", 3, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert shop.due() == ("a",)
    assert shop.expire_due() == ((), False)
    assert type(shop.reserve("b", 3)).__name__ == "SoldOut"
    assert shop.totals() == (2, 3, 0)
    assert shop.confirm("a").state == "confirmed"


def at_most(steps: int, plan: Plan[Any]) -> Plan[Any]:
    """Run a plan that is to end after so many steps."""
    reply: object = None
    for _ in range(steps):
        try:
            effect = plan.send(reply)
        except StopIteration as stop:
            return stop.value
        reply = yield effect
    pytest.fail(f"it goes on after {steps} steps")


def test_a_sweep_that_meets_a_hundred_due_holds_under_living_leases_ends(shop: Shop) -> None:
    shop.open(101, 101)
    for number in range(101):
        shop.granted(f"o{number}", hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert len(shop.due(1_000)) == 101
    assert shop.side.run(at_most(3, expire_plan(shop.sku, 1_000))) == ()


def test_an_order_that_is_decided_after_it_was_named_as_due_is_left_out(shop: Shop) -> None:
    shop.open(8, 2)
    for order_id in "ab":
        shop.reserved(order_id, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()

    def meanwhile() -> Plan[None]:
        yield from perform(op.Confirm(shop.sku, "a"))

    due = shop.side.run(interposed(due_plan(shop.sku, 10), (asks(op.ReadOrders), meanwhile)))
    assert [record.order_id for record in due] == ["b"]


def undo(shop: Shop, *order_ids: str) -> list[str | None]:
    answers = shop.side.execute(op.SettleMany(shop.sku, "cancelled", order_ids, unheard=True))
    return [getattr(answer, "state", None) for answer in answers]


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


@pytest.fixture
def epoch_shop(side: Side) -> Shop:
    """A pool of ten units in its second epoch, in which two of them are sold."""
    epoch_shop = Shop(side, side.name())
    epoch_shop.open(10, 4, gated=True)
    epoch_shop.side.execute(op.FreezePool(epoch_shop.sku, 1))
    epoch_shop.side.execute(op.ThawPool(epoch_shop.sku, 2, 2, 10, is_stored=True))
    verified(side, epoch_shop.sku, epoch=2)
    return epoch_shop


def confirm_order(epoch_shop: Shop, order_id: str, epoch: int | None, holder_id: str | None = None) -> Settled:
    return epoch_shop.side.execute(op.Confirm(epoch_shop.sku, order_id, holder_id, decided=True, epoch=epoch))


def confirm_many(epoch_shop: Shop, *order_ids: str, epoch: int) -> tuple[Settled | SegmentedError | None, ...]:
    return epoch_shop.side.execute(op.SettleMany(epoch_shop.sku, "confirmed", order_ids, decided=True, epoch=epoch))


def end_sold(epoch_shop: Shop, *order_ids: str) -> tuple[Settled | SegmentedError | None, ...]:
    return epoch_shop.side.execute(
        op.SettleMany(epoch_shop.sku, "cancelled", order_ids, decided=True, sold_before=True)
    )


def test_an_order_stored_in_an_earlier_epoch_is_not_confirmed_with_units_of_this_one(epoch_shop: Shop) -> None:
    epoch_shop.reserved("again", 3)
    epoch_shop.granted("granted", 1)
    queue(epoch_shop, Order("queued"))
    before = epoch_shop.state()
    for order_id in ("again", "queued", "unknown"):
        with pytest.raises(EpochEnded) as error:
            confirm_order(epoch_shop, order_id, 1)
        assert (error.value.sku, error.value.epoch) == (epoch_shop.sku, 2)
    with pytest.raises(EpochEnded):
        confirm_order(epoch_shop, "granted", 1, "holder of granted")
    assert named(confirm_many(epoch_shop, "again", "queued", "unknown", "granted", epoch=1)) == ["EpochEnded"] * 4
    assert epoch_shop.state() == before
    assert confirm_order(epoch_shop, "again", 2).state == "confirmed"
    assert named(confirm_many(epoch_shop, "granted", epoch=3)) == ["Settled"]
    assert epoch_shop.totals() == (4, 0, 6)


def test_units_of_an_order_sold_in_an_earlier_epoch_go_back_and_its_callers_get_sold(epoch_shop: Shop) -> None:
    epoch_shop.reserved("again", 3)
    epoch_shop.granted("granted", 2)
    ended = end_sold(epoch_shop, "again", "granted", "unknown", "again")
    assert named(ended) == ["Settled", "Settled", "OrderUnknown", "Settled"]
    told = [(one.state, one.quantity, one.replay) for one in ended if isinstance(one, Settled)]
    assert told == [("confirmed", 3, False), ("confirmed", 2, False), ("confirmed", 3, True)]
    assert epoch_shop.totals() == (8, 0, 2)
    answers = [
        epoch_shop.reserve("again", 3),
        epoch_shop.grant("granted", 2),
        confirm_order(epoch_shop, "again", 1),
        *end_sold(epoch_shop, "again"),
    ]
    assert [(getattr(one, "state", None), getattr(one, "replay", None)) for one in answers] == [("confirmed", True)] * 4
    assert getattr(epoch_shop.cancel("again", voided=True), "state", None) == "confirmed"
    entry = epoch_shop.ledger()[-1]
    assert (entry.kind, entry.note) == ("cancelled", "sold before")
    record = epoch_shop.record("again")
    assert record is not None
    assert record.state == "confirmed"
    epoch_shop.check_books()


def test_a_queued_order_that_an_earlier_epoch_sold_ends_without_units(epoch_shop: Shop) -> None:
    queue(epoch_shop, Order("queued", 3), after_ms=0)
    (ended,) = end_sold(epoch_shop, "queued")
    assert isinstance(ended, Settled)
    assert (ended.state, ended.quantity) == ("confirmed", 3)
    (again,) = queue(epoch_shop, Order("queued", 3))
    assert isinstance(again, Decided)
    assert (again.state, again.quantity, again.replay) == ("confirmed", 3, True)
    (found,) = epoch_shop.side.execute(op.ReadSubmitted(epoch_shop.sku, ("queued",)))
    assert (found.state, found.is_in_outbox) == ("confirmed", False)
    assert epoch_shop.totals() == (8, 0, 2)
    epoch_shop.check_books()


def test_a_cancelled_order_stays_cancelled(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserved("a", 4)
    shop.cancel("a")
    assert undo(shop, "a") == ["cancelled"]
    assert getattr(shop.reserve("a", 4), "state", None) == "cancelled"


# Units of a sold order come back, once for each return id, and at most as many as were sold.


def sell(pool: Pool, order: Order) -> None:
    pool.reserve(order)
    pool.confirm(order.order_id)


def test_one_of_three_units_comes_back_once_however_often_it_is_asked(side: Side, pool: Pool) -> None:
    sell(pool, Order("a", 3))
    first = pool.return_units("a", 1, return_id="rma-1")
    assert first == Returned("a", "rma-1", 1, quantity=2, sequence=4, replay=False)
    for _ in range(2):
        assert side.pool(pool.sku).return_units("a", 1, return_id="rma-1").replay
    assert (pool.state().available, pool.state().confirmed) == (6, 2)
    record = pool.order("a")
    assert record is not None
    assert (record.state, record.quantity, record.asked) == ("confirmed", 2, 3)
    assert pool.confirm("a").replay


def test_an_order_whose_units_have_all_come_back_is_returned_and_not_sold(pool: Pool) -> None:
    sell(pool, Order("a", 3))
    sell(pool, Order("b", 5))
    pool.return_units("a", 1, return_id="rma-1")
    assert pool.return_units("a", 2, return_id="rma-2").quantity == 0
    record = pool.order("a")
    assert record is not None
    assert record.state == "returned"
    with pytest.raises(AlreadySettled, match=r"^order 'a' is already returned: it cannot be confirmed$"):
        pool.confirm("a")
    with pytest.raises(AlreadySettled, match=r"^order 'a' is already returned: nothing of it can be returned$"):
        pool.return_units("a", 1, return_id="rma-3")
    assert pool.cancel("a").state == "returned"
    assert isinstance(pool.reserve("c", quantity=3), Reserved)
    assert (pool.state().available, pool.state().confirmed) == (0, 5)


def test_returns_of_an_order_are_at_most_what_was_sold(pool: Pool) -> None:
    sell(pool, Order("a", 3))
    pool.return_units("a", 2, return_id="rma-1")
    with pytest.raises(InvalidInput, match=r"^2 units of order 'a' cannot be returned: 1 of it are sold$"):
        pool.return_units("a", 2, return_id="rma-2")
    with pytest.raises(ChangeMismatch, match=r"^change 'rma-1' of pool .* was something else before$"):
        pool.return_units("a", 1, return_id="rma-1")
    pool.restock(1, restock_id="more")
    with pytest.raises(ChangeMismatch):
        pool.return_units("a", 1, return_id="more")
    with pytest.raises(ChangeMismatch):
        pool.restock(2, restock_id="rma-1")
    assert (pool.state().available, pool.state().confirmed) == (8, 1)


def test_an_order_that_is_not_sold_gives_nothing_back(pool: Pool) -> None:
    pool.reserve("held", quantity=2)
    with pytest.raises(InvalidInput, match=r"^order 'held' is reserved, not sold: cancel it, or change its quantity$"):
        pool.return_units("held", 1, return_id="rma-1")
    pool.cancel("held")
    with pytest.raises(AlreadySettled, match=r"^order 'held' is already cancelled: nothing of it can be returned$"):
        pool.return_units("held", 1, return_id="rma-1")
    with pytest.raises(OrderUnknown, match=r"^order 'nobody' is not known to the pool$"):
        pool.return_units("nobody", 1, return_id="rma-1")
    assert pool.state().available == 8


def test_the_customers_limit_has_room_for_what_came_back(side: Side) -> None:
    pool = side.pool(side.name())
    pool.open(stock=8, segments=2, limit_per_customer=3)
    sell(pool, Order("a", 3, "ann"))
    assert isinstance(pool.reserve(Order("b", 1, "ann")), LimitReached)
    pool.return_units("a", 2, return_id="rma-1")
    assert isinstance(pool.reserve(Order("b", 2, "ann")), Reserved)
    assert isinstance(pool.reserve(Order("c", 1, "ann")), LimitReached)
    assert pool.audit().is_clean


def test_units_of_several_segments_and_of_a_removed_one_come_back(pool: Pool) -> None:
    sell(pool, Order("a", 7))
    pool.resize(3)
    pool.return_units("a", 4, return_id="rma-1")
    pool.resize(1)
    pool.return_units("a", 3, return_id="rma-2")
    assert pool.state().stock == (8,)


@pytest.mark.parametrize("limit", [None, 7])
def test_an_audit_is_clean_after_a_trim_between_sale_and_return(side: Side, limit: int | None) -> None:
    pool = side.pool(side.name())
    pool.open(stock=8, segments=2, limit_per_customer=limit)
    sell(pool, Order("a", 3, "ann"))
    sell(pool, Order("b", 2, "ann"))
    pool.trim_ledger(keep=0)
    pool.return_units("a", 1, return_id="rma-1")
    assert pool.audit().is_clean
    pool.return_units("a", 2, return_id="rma-2")
    assert pool.audit().is_clean
    pool.trim_ledger(keep=0)
    pool.return_units("b", 1, return_id="rma-3")
    report = pool.audit()
    assert report.is_clean, report.drift
    assert (report.state.available, report.state.confirmed) == (7, 1)


def test_the_ledger_says_what_came_back(shop: Shop) -> None:
    shop.open(8, 2)
    shop.reserved("a", 3)
    shop.confirm("a")
    shop.side.pool(shop.sku).return_units("a", 1, return_id="rma-1")
    last = shop.ledger()[-1]
    assert (last.kind, last.order_id, last.quantity, last.note) == ("returned", "a", 2, f"{last.segment}:1 rma-1")


def test_an_order_in_shards_gives_back_at_its_home(side: Side) -> None:
    pool = sharded(side, side.name())
    pool.open(stock=9, segments=4, shards=3, limit_per_customer=4)
    pool.reserve(Order("a", 4, "ann"))
    pool.confirm("a", customer_id="ann")
    assert pool.return_units("a", 3, return_id="rma-1", customer_id="ann").quantity == 1
    assert (pool.state().available, pool.state().confirmed) == (8, 1)
    check_all(pool)
