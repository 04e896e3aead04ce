"""Returns of a gated pool: SQL first, and both sides agree whichever step is the last before a process dies."""

from collections.abc import Callable
from typing import Final

import pytest
import redis

from segmented import Order, Outbox, Pool, RedisStore, protocol as op
from segmented.errors import (
    AlreadySettled,
    ChangeMismatch,
    InvalidInput,
    OrderInWork,
    OrderMismatch,
    OrderQueued,
    OrderUnknown,
    PoolFrozen,
    PoolGated,
)
from segmented.models import Cart, CartReserved, LimitReached, Reserved
from segmented.orders import Gate, audit_both, rebuild, reopen_gated, verify
from segmented.orders.answers import Return
from segmented.orders.gate import finish_returns
from segmented.servers import ValkeyServer
from segmented.stock import Carts
from tests.support.command_line import ran
from tests.support.dying import Deaths
from tests.support.overtaking import OvertakenStore
from tests.support.pools.both_sides import judged, sql_rows
from tests.support.pools.forgetting import forgotten

SKU: Final = "mug"
ENDS: Final[dict[str, Callable[[Pool], object]]] = {
    "confirm": lambda pool: pool.confirm("b"),
    "expire": lambda pool: pool.expire(),
}


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """Eight units, of which order `a` of Ann has bought three."""
    made = Pool(store, SKU, gate=gate)
    made.open(stock=8, segments=2, limit_per_customer=3)
    made.reserve(Order("a", 3, "ann"))
    made.confirm("a")
    return made


def test_a_return_is_stored_once_and_both_sides_have_it(pool: Pool, valkey: ValkeyServer, order_database: str) -> None:
    answers = [pool.return_units("a", 1, return_id="rma-1") for _ in range(3)]
    assert [(one.quantity, one.replay) for one in answers] == [(2, False), (2, True), (2, True)]
    assert judged(valkey.url, order_database) == (8, 2, 6)
    rows = "SELECT order_id, units, state FROM segmented_returns"
    assert sql_rows(order_database, rows) == [("a", 1, "done")]
    assert isinstance(pool.reserve(Order("b", 2, "ann")), LimitReached)
    assert isinstance(pool.reserve(Order("c", 1, "ann")), Reserved)
    assert pool.audit().is_clean
    assert audit_both(pool, pool.gate).is_clean  # type: ignore[arg-type]  # it has one


def test_an_order_returned_whole_is_void_in_sql_and_returned_in_the_pool(
    pool: Pool, gate: Gate, valkey: ValkeyServer, order_database: str
) -> None:
    pool.return_units("a", 1, return_id="rma-1")
    pool.return_units("a", 2, return_id="rma-2")
    assert judged(valkey.url, order_database) == (8, 0, 8)
    row, record = gate.orders(SKU, ["a"])["a"], pool.order("a")
    assert record is not None
    assert (row.state, record.state) == ("void", "returned")
    for call in (lambda: pool.confirm("a"), lambda: pool.return_units("a", 1, return_id="rma-3")):
        with pytest.raises(AlreadySettled, match=r"^order 'a' is already returned: "):
            call()
    assert audit_both(pool, gate).is_clean


def test_what_cannot_be_returned_is_refused_in_one_sentence(
    pool: Pool, store: RedisStore, valkey: ValkeyServer, order_database: str
) -> None:
    pool.reserve(Order("held", 2, "bob"))
    with pytest.raises(InvalidInput, match=r"^4 units of order 'a' cannot be returned: 3 of it are sold$"):
        pool.return_units("a", 4, return_id="rma-1")
    with pytest.raises(InvalidInput, match=r"^order 'held' is reserved, not sold: "):
        pool.return_units("held", 1, return_id="rma-1")
    with pytest.raises(OrderUnknown):
        pool.return_units("nobody", 1, return_id="rma-1")
    with pytest.raises(PoolGated):
        Pool(store, SKU).return_units("a", 1, return_id="rma-1")
    assert judged(valkey.url, order_database) == (8, 3, 3)
    pool.return_units("a", 1, return_id="rma-1")
    with pytest.raises(ChangeMismatch):
        pool.return_units("a", 2, return_id="rma-1")
    assert judged(valkey.url, order_database) == (8, 2, 4)


def test_an_order_that_waits_for_a_worker_is_queued_and_not_returned(store: RedisStore, gate: Gate) -> None:
    pool = Pool(store, SKU, gate=gate, outbox=Outbox.under_lock())
    pool.open(stock=8, segments=2)
    pool.submit("a", quantity=3)
    with pytest.raises(OrderQueued):
        pool.return_units("a", 1, return_id="rma-1")


@pytest.mark.parametrize("is_gated", [False, True])
def test_a_repeated_confirm_after_a_return_has_the_units_that_the_order_keeps(
    store: RedisStore, gate: Gate, *, is_gated: bool
) -> None:
    pool = Pool(store, SKU, gate=gate if is_gated else None)
    pool.open(stock=8, segments=2)
    pool.reserve(Order("a", 3))
    found = [pool.confirm("a")]
    pool.return_units("a", 1, return_id="rma-1")
    found += [pool.confirm("a"), *pool.confirm_many(["a"])]  # type: ignore[list-item]  # it is sold
    assert [(one.state, one.quantity, one.replay) for one in found] == [
        ("confirmed", 3, False),
        ("confirmed", 2, True),
        ("confirmed", 2, True),
    ]


def test_a_return_and_a_restock_of_one_id_are_refused_and_change_neither_side(
    pool: Pool, gate: Gate, valkey: ValkeyServer, order_database: str
) -> None:
    pool.restock(2, restock_id="x")
    with pytest.raises(ChangeMismatch):
        pool.return_units("a", 1, return_id="x")
    pool.return_units("a", 1, return_id="y")
    for change in (
        lambda: pool.restock(1, restock_id="y"),
        lambda: pool.withdraw(1, withdraw_id="y"),
    ):
        with pytest.raises(ChangeMismatch):
            change()
    assert judged(valkey.url, order_database) == (10, 2, 8)
    assert (gate.returns.begun(SKU), gate.unfinished_changes(SKU)) == ((), ())


@pytest.mark.parametrize("units", [1, 3])
def test_a_return_that_died_after_sql_is_finished_by_a_repeat(
    pool: Pool, gate: Gate, valkey: ValkeyServer, order_database: str, units: int
) -> None:
    gate.returns.begin(Return(SKU, "a", units, "rma-1"))
    report = audit_both(pool, gate)
    assert (report.is_clean, report.unsettled) == (True, 1)
    assert [one.order_id for one in gate.returns.begun(SKU)] == ["a"]
    assert pool.return_units("a", units, return_id="rma-1").quantity == 3 - units
    assert gate.returns.begun(SKU) == ()
    assert judged(valkey.url, order_database) == (8, 3 - units, 5 + units)


def test_returns_whose_processes_died_are_finished_by_another_that_knows_no_id(
    pool: Pool, gate: Gate, valkey: ValkeyServer, order_database: str
) -> None:
    gate.returns.begin(Return(SKU, "a", 1, "rma-1"))
    gate.returns.begin(Return(SKU, "a", 1, "rma-2"))
    assert [finish_returns(pool.plain, gate) for _ in range(2)] == [2, 0]
    assert judged(valkey.url, order_database) == (8, 1, 7)
    assert (pool.return_units("a", 1, return_id="rma-2").replay, gate.returns.begun(SKU)) == (True, ())


@pytest.mark.parametrize("units", [1, 2])
def test_an_order_whose_pool_was_never_told_of_its_sale_can_be_returned(
    pool: Pool, gate: Gate, valkey: ValkeyServer, order_database: str, units: int
) -> None:
    reserved = pool.reserve(Order("b", 2, "bob"))
    assert isinstance(reserved, Reserved)
    gate.confirm(order_id="b", sku=SKU, segment=reserved.segment, quantity=2, epoch=1, customer_id="bob")
    assert pool.return_units("b", units, return_id="rma-1").quantity == 2 - units
    assert judged(valkey.url, order_database) == (8, 5 - units, 3 + units)
    assert pool.audit().is_clean


@pytest.mark.parametrize("end", ENDS)
def test_a_return_that_died_leaves_no_order_that_the_pool_takes_for_another(
    store: RedisStore, gate: Gate, valkey: ValkeyServer, end: str
) -> None:
    deaths = Deaths(gate)
    for step in deaths:
        pool = Pool(store, f"{SKU}-{step}", gate=gate)
        pool.open(stock=8, segments=2)
        reserved = pool.reserve(Order("b", 2))
        assert isinstance(reserved, Reserved)
        gate.confirm(order_id="b", sku=pool.sku, segment=reserved.segment, quantity=2, epoch=1)
        with redis.Redis.from_url(valkey.url) as server:
            server.zadd(f"seg:{{{pool.sku}:0}}:holds", {"b": 1}, xx=True)
        dying = Pool(deaths.store(store), pool.sku, gate=gate)
        deaths.at_step(dying.return_units, "b", 1, return_id="rma-1")
        ENDS[end](pool)
        assert pool.return_units("b", 1, return_id="rma-1").quantity == 1
        assert (pool.state().available, pool.state().confirmed, gate.totals(pool.sku).sold) == (7, 1, 1)
        assert audit_both(pool, gate).is_clean


def test_a_line_of_a_cart_whose_lines_are_not_told_is_not_returned(pool: Pool, store: RedisStore, gate: Gate) -> None:
    cart = Cart("c", [(SKU, 2)], "bob")
    carts = Carts(store, gate=gate)
    reserved = carts.reserve(cart)
    assert isinstance(reserved, CartReserved)
    assert gate.sell_cart([pool.plain], cart) == "confirmed"
    with pytest.raises(OrderInWork):
        pool.return_units(reserved.order_id, 1, return_id="rma-1")
    assert carts.confirm("c", home=SKU)
    for left in (1, 0):
        assert pool.return_units(reserved.order_id, 1, return_id=f"rma-{left}").quantity == left
        assert audit_both(pool, gate).is_clean
        assert pool.audit().is_clean


@pytest.mark.parametrize("lost", ["nothing", "orders"])
def test_a_repeat_of_an_order_that_gave_units_back_before_a_rebuild_is_known(
    store: RedisStore, gate: Gate, valkey: ValkeyServer, lost: str
) -> None:
    pool = Pool(store, SKU, gate=gate)
    pool.open(stock=16, segments=2)
    for order_id in ("a", "b"):
        pool.reserve(Order(order_id, 4, "ann"))
    pool.change("b", quantity=3)
    for order_id in ("a", "b"):
        pool.confirm(order_id)
    pool.return_units("a", 1, return_id="rma-1")
    with redis.Redis.from_url(valkey.url) as server:
        server.delete(f"seg:{{{SKU}:0}}:{lost}")
    rebuild(pool, gate, selling=True)
    pool = Pool(store, SKU, gate=gate)
    for order_id in ("a",) if lost == "orders" else ("a", "b"):
        answer = pool.reserve(Order(order_id, 4, "ann"))
        assert (answer.state, answer.quantity) == ("confirmed", 3)  # type: ignore[union-attr]  # it is Decided
        for other in (Order(order_id, 5, "ann"), Order(order_id, 2, "ann"), Order(order_id, 4, "bob")):
            with pytest.raises(OrderMismatch):
                pool.reserve(other)


@pytest.mark.parametrize("units", [1, 3])
def test_an_order_sold_before_a_rebuild_is_returned_from_what_sql_knows(
    store: RedisStore, gate: Gate, valkey: ValkeyServer, units: int
) -> None:
    pool = Pool(store, SKU, gate=gate)
    pool.open(stock=8, segments=2)
    pool.reserve(Order("a", 3, "ann"))
    pool.confirm("a")
    with redis.Redis.from_url(valkey.url) as server:
        server.delete(f"seg:{{{SKU}:0}}:orders")
    rebuild(pool, gate)
    assert (pool.state().available, pool.state().confirmed) == (5, 3)
    for _ in range(2):
        assert pool.return_units("a", units, return_id="rma-1").quantity == 3 - units
    state = pool.state()
    assert (state.available, state.confirmed, state.lost) == (5 + units, 3 - units, 3 - units)
    assert gate.totals(SKU).sold == 3 - units
    assert pool.audit().is_clean
    report = audit_both(pool, gate)
    assert report.is_clean, report.differences


@pytest.mark.parametrize("units", [1, 3])
@pytest.mark.parametrize("kept", ["sold", "reserved", "nothing"])
def test_a_done_return_that_the_pool_lost_is_made_again_after_a_rebuild(
    store: RedisStore, gate: Gate, valkey: ValkeyServer, order_database: str, kept: str, units: int
) -> None:
    pool = Pool(store, SKU, gate=gate)
    pool.open(stock=8, segments=2)
    steps: list[Callable[[], object]] = [
        lambda: pool.reserve(Order("a", 3, "ann")),
        lambda: pool.confirm("a"),
        lambda: pool.return_units("a", units, return_id="rma-1"),
    ]
    at = ("nothing", "reserved", "sold").index(kept)
    for step in steps[:at]:
        step()
    with forgotten(pool.plain):  # its server comes back with an older snapshot
        for step in steps[at:]:
            step()
    with pytest.raises(PoolFrozen):
        verify(Pool(RedisStore(valkey.url), SKU), gate)
    assert rebuild(pool.plain, gate).state.available == 5
    assert audit_both(pool, gate).is_clean
    assert finish_returns(pool.plain, gate) == 1
    assert pool.return_units("a", units, return_id="rma-1").replay
    assert judged(valkey.url, order_database, forgets=kept == "nothing") == (8, 3 - units, 5 + units)
    if units < 3:
        assert pool.return_units("a", 3 - units, return_id="rest").quantity == 0
    assert judged(valkey.url, order_database) == (8, 0, 8)
    assert audit_both(pool, gate).is_clean
    assert pool.audit().is_clean


@pytest.mark.parametrize("is_lost", [False, True])
def test_an_order_sold_before_its_pool_was_opened_again_can_be_returned(
    pool: Pool, gate: Gate, store: RedisStore, valkey: ValkeyServer, *, is_lost: bool
) -> None:
    with redis.Redis.from_url(valkey.url) as server:
        if is_lost:  # rebuilt: it counts what it has no record of
            server.delete(f"seg:{{{SKU}:0}}:orders", f"seg:{{{SKU}:0}}:customers")
            rebuild(pool.plain, gate)
        else:
            server.flushall()
            reopen_gated(pool.plain, gate, segments=2, epoch=2)
    pool = Pool(store, SKU, gate=gate)
    gate.returns.begin(Return(SKU, "a", 1, "rma-1"))
    assert audit_both(pool, gate).is_clean
    assert [pool.return_units("a", 1, return_id="rma-1").replay for _ in range(2)] == [False, True]
    assert pool.return_units("a", 2, return_id="rma-2").quantity == 0
    assert (pool.state().available, gate.totals(SKU).sold, gate.returns.begun(SKU)) == (8, 0, ())
    with pytest.raises(ChangeMismatch):
        pool.restock(1, restock_id="rma-1")
    assert audit_both(pool, gate).is_clean
    assert pool.audit().is_clean


def test_a_refund_from_the_command_line_gives_all_units_back_once(
    pool: Pool, valkey: ValkeyServer, order_database: str
) -> None:
    asked = ("pool", "refund", SKU, "a", "--return-id", "rma-1", "--database", order_database)
    first, second = ran(*asked, "--units", "1", url=valkey.url), ran(*asked, "--units", "1", url=valkey.url)
    assert first.stdout == "returned: 1 unit of order 'a', which keeps 2\n"
    assert second.stdout == "returned before under this id: 1 unit of order 'a', nothing is changed now\n"
    rest = ran("pool", "refund", SKU, "a", "--return-id", "rma-2", "--database", order_database, url=valkey.url)
    assert rest.stdout == "returned: 2 units of order 'a', which keeps 0\n"
    again = ran(*asked[:5], "rma-3", *asked[6:], "--units", "1", url=valkey.url)
    assert (again.returncode, again.stdout) == (1, "")
    assert "order 'a' is already returned: nothing of it can be returned" in again.stderr
    listed = ran("pool", "orders", SKU, "--state", "returned", url=valkey.url)
    assert '"order_id": "a"' in listed.stdout
    assert judged(valkey.url, order_database) == (8, 0, 8)
    assert pool.order("a")


@pytest.mark.parametrize("is_late", [False, True])
def test_a_return_that_meets_a_rebuild_is_made_once_in_the_new_epoch(
    pool: Pool, gate: Gate, valkey: ValkeyServer, order_database: str, *, is_late: bool
) -> None:
    with forgotten(pool.plain):
        pool.reserve(Order("lost", 2, "bob"))
        pool.confirm("lost")

    def rebuilt() -> None:
        pool.store.execute(op.FreezePool(SKU, pool.state().epoch))
        rebuild(pool.plain, gate)

    if is_late:  # its process is held up between the two sides
        rebuilt()
        held_up = Pool(OvertakenStore(pool.store, op.ReturnUnits, 1, rebuilt), SKU, gate=gate)
        assert held_up.return_units("a", 1, return_id="rma-1").replay is False
    else:
        pool.store.execute(op.FreezePool(SKU, 1))
        with pytest.raises(PoolFrozen):
            pool.return_units("a", 1, return_id="rma-1")
        rebuilt()
        assert finish_returns(pool.plain, gate) == 1
    assert judged(valkey.url, order_database, forgets=True) == (8, 4, 4)
    assert audit_both(pool, gate).is_clean
    for order_id in ("a", "lost"):
        assert pool.return_units(order_id, 2, return_id=f"all of {order_id}").quantity == 0
    assert judged(valkey.url, order_database) == (8, 0, 8)
    assert audit_both(pool, gate).is_clean
    assert pool.audit().is_clean
