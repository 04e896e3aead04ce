"""A change that meets a confirm of the same order: whichever step is first, or the last, SQL and Redis agree."""

from collections.abc import Callable
from typing import Any, Final

import pytest
import redis
from sqlalchemy import event

from segmented import AlreadySettled, Order, Outbox, Pool, RedisStore, protocol as op
from segmented.orders import Gate, take_envelope
from segmented.servers import ValkeyServer
from tests.support.pools.both_sides import judged
from tests.support.pools.engines import engine_of

SKU: Final = "mug"


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    made = Pool(store, SKU, gate=gate)
    made.open(stock=8, segments=2, limit_per_customer=3)
    made.reserve(Order("a", 3, "ann"))
    return made


@pytest.fixture
def store_three(pool: Pool, gate: Gate) -> Callable[[], Any]:
    """Store the order as a process does that has read its record before the change, and dies after this step."""
    record = pool.order("a")
    assert record is not None
    return lambda: gate.confirm(
        order_id="a", sku=SKU, segment=record.segment, quantity=3, epoch=1, customer_id="ann", asked=3
    )


ENDS: Final[dict[str, Callable[[Pool], object]]] = {
    "the confirm is repeated": lambda pool: pool.confirm("a"),
    "a cancel finds it sold": lambda pool: pool.cancel_many(["a"]),
    "its hold expires": lambda pool: pool.expire(),
}


def let_hold_end(valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(valkey.url) as server:
        server.zadd(f"seg:{{{SKU}:0}}:holds", {"a": 1}, xx=True)


@pytest.mark.parametrize("end", ENDS)
def test_an_order_changed_while_it_is_confirmed_is_sold_with_what_it_kept(
    pool: Pool, store_three: Callable[[], Any], valkey: ValkeyServer, order_database: str, end: str
) -> None:
    pool.change("a", quantity=2)
    store_three()
    let_hold_end(valkey)
    ENDS[end](pool)
    assert judged(valkey.url, order_database) == (8, 2, 6)
    record = pool.order("a")
    assert record is not None
    assert (record.state, record.quantity, record.asked) == ("confirmed", 2, 3)
    assert pool.audit().is_clean
    assert pool.reserve(Order("b", 1, "ann"))
    assert not pool.reserve(Order("c", 1, "ann"))


@pytest.mark.parametrize("end", ENDS)
def test_an_order_that_is_sold_and_the_pool_not_told_is_not_changed(
    pool: Pool, store_three: Callable[[], Any], valkey: ValkeyServer, order_database: str, end: str
) -> None:
    store_three()
    for quantity in (2, 3):
        with pytest.raises(AlreadySettled, match="order 'a' is already confirmed: its quantity is not changed"):
            pool.change("a", quantity=quantity)
    let_hold_end(valkey)
    ENDS[end](pool)
    assert judged(valkey.url, order_database) == (8, 3, 5)
    assert pool.audit().is_clean


@pytest.mark.parametrize("end", ["confirm", "expire"])
def test_an_end_of_what_an_order_had_before_its_change_leaves_it_its_units(
    pool: Pool, gate: Gate, valkey: ValkeyServer, order_database: str, end: str
) -> None:
    let_hold_end(valkey)
    record = pool.order("a")
    assert record is not None
    others: list[object] = []

    @event.listens_for(engine_of(gate), "before_cursor_execute")
    def change_and_store(*call: object) -> None:
        """Be the processes that change the order and store it, and die before the pool is told."""
        if not others:
            others.append(call)
            pool.change("a", quantity=1)
            gate.confirm(order_id="a", sku=SKU, segment=record.segment, quantity=1, epoch=1, customer_id="ann", asked=3)

    getattr(pool, end)(*(["a"] if end == "confirm" else []))
    assert others
    assert judged(valkey.url, order_database) == (8, 1, 7)


def test_a_changed_order_is_confirmed_and_its_repeats_are_replays(
    pool: Pool, valkey: ValkeyServer, order_database: str
) -> None:
    pool.change("a", quantity=2)
    assert [(one.quantity, one.replay) for one in (pool.confirm("a"), pool.confirm("a"))] == [(2, False), (2, True)]
    assert judged(valkey.url, order_database) == (8, 2, 6)
    assert pool.audit().is_clean


def test_the_last_freed_unit_is_sold_although_its_change_died(
    pool: Pool, store_three: Callable[[], Any], valkey: ValkeyServer, order_database: str
) -> None:
    """The database counts the unit as sold until somebody lowers the row: the buyer who holds it now."""
    store_three()
    pool.store.execute(op.ChangeQuantity(SKU, "a", 2))  # and its process dies before it lowers the row
    assert pool.reserve(Order("b", 3, "bob"))
    assert pool.reserve(Order("c", 3, "cid"))
    assert [pool.confirm(order_id).state for order_id in ("b", "c", "a")] == ["confirmed"] * 3
    assert judged(valkey.url, order_database) == (8, 8, 0)
    assert pool.audit().is_clean


def test_an_envelope_waits_for_the_last_freed_unit_and_freezes_nothing(
    pool: Pool, gate: Gate, store_three: Callable[[], Any], valkey: ValkeyServer, order_database: str
) -> None:
    store_three()
    pool.store.execute(op.ChangeQuantity(SKU, "a", 2))
    submits = Pool(pool.store, SKU, gate=gate, outbox=Outbox())
    submits.submit_many([Order("b", 3, "bob"), Order("c", 3, "cid")])
    report = take_envelope(submits.plain, ["b", "c"], gate=gate)
    assert list(report.put_off) == ["c"]
    assert [one.state for one in take_envelope(submits.plain, ["c"], gate=gate).settled] == ["confirmed"]
    assert pool.confirm("a").state == "confirmed"
    assert judged(valkey.url, order_database) == (8, 8, 0)
