"""A pool with an order database."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import create_engine, text

from segmented import Closed, Order, Pool, RedisStore, Reserved, Settled, SoldOut, protocol as op
from segmented.errors import (
    AlreadySettled,
    ChangeGated,
    DatabaseUnavailable,
    GrantSuperseded,
    InvalidInput,
    NotGranted,
    PoolGated,
    PoolNotGated,
    RowsMissing,
)
from segmented.keys import shard_keys
from segmented.models import Decided, Opened
from segmented.orders import AsyncGate, Gate, connect
from segmented.stock import Grant
from segmented.stock.outbox import Outbox
from tests.support.overtaking import OvertakenStore
from tests.support.pools.gated_shop import check

pytestmark = pytest.mark.usefixtures("patient_attempts")


SKU: Final = "mug"


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    pool = Pool(store, SKU, gate=gate, outbox=Outbox(publish_after=600))
    assert isinstance(pool.open(stock=20, segments=2), Opened)
    return pool


@pytest.fixture
def sold(order_database: str) -> Iterator[Callable[[], tuple[int, int]]]:
    """Read the confirmed orders and their units with plain SQL."""
    engine = connect(order_database, pool_size=1)

    def read() -> tuple[int, int]:
        with engine.connect() as connection:
            statement = text(
                "SELECT count(*), coalesce(sum(quantity), 0) FROM segmented_orders WHERE state = 'confirmed'"
            )
            count, units = connection.execute(statement).one()
            return int(count), int(units)

    yield read
    engine.dispose()


# --- selling ---


def test_an_order_is_stored_at_the_end_of_the_with_statement(
    pool: Pool, gate: Gate, sold: Callable[[], tuple[int, int]]
) -> None:
    with pool.grant("a", quantity=3) as grant:
        assert isinstance(grant, Grant)
        assert sold() == (0, 0)
    assert sold() == (1, 3)
    row = gate.orders(SKU, ["a"])["a"]
    assert (row.segment, row.fence, row.epoch) == (grant.segment, grant.fencing_token, 1)
    check(pool, gate, confirmed=3, available=17)


def test_a_body_does_not_run_for_a_sold_order(pool: Pool, gate: Gate) -> None:
    with pool.grant("a"):
        pass
    with pytest.raises(NotGranted, match="confirmed"), pool.grant("a"):
        pytest.fail("the body ran again")
    gate.confirm(order_id="b", sku=SKU, segment=0, quantity=1, epoch=1)  # and the pool was not told
    answer = pool.grant("b")
    assert isinstance(answer, Decided)
    assert answer.state == "confirmed"
    check(pool, gate, confirmed=2, available=18)


def test_an_overtaken_grant_stores_nothing_and_its_order_is_granted_again(
    pool: Pool, gate: Gate, sold: Callable[[], tuple[int, int]]
) -> None:
    first = Pool(pool.store, SKU, gate=gate, ttl=0.001).grant("a")
    assert isinstance(first, Grant)
    gate.confirm(order_id="b", sku=SKU, segment=first.segment, quantity=1, epoch=1, fence=first.fencing_token + 10**9)
    with pytest.raises(GrantSuperseded):
        first.confirm()
    assert sold() == (1, 1)
    with first.pool.grant("a") as again:
        assert again.fencing_token > first.fencing_token + 10**9
    assert sold() == (2, 2)


def test_an_order_that_only_the_database_knows_gets_its_answer(pool: Pool, gate: Gate) -> None:
    gate.void(order_id="a", sku=SKU, quantity=1)
    with pytest.raises(AlreadySettled, match="cancelled"):
        pool.confirm("a")
    settled = pool.cancel("a")
    assert isinstance(settled, Settled)
    assert (settled.state, settled.replay) == ("cancelled", True)


def test_a_refused_order_stays_refused(pool: Pool, gate: Gate) -> None:
    assert isinstance(pool.grant("a", quantity=21, keep_refusal=True), SoldOut)
    with pytest.raises(AlreadySettled, match=r"^order 'a' is already refused: it cannot be confirmed$"):
        pool.confirm("a")
    check(pool, gate, confirmed=0, available=20)


# --- with and without ---


def test_a_gated_pool_without_its_gate_refuses_each_call(pool: Pool) -> None:
    bare = pool.plain
    with pool.grant("sold"):
        pass
    pool.reserve("a")
    with pytest.raises(PoolGated, match="use Pool"), bare.grant("b"):
        pytest.fail("the body ran")
    with pool.grant("b", timeout=60):  # no segment is locked, and the units are still the order's
        pass
    for call in (lambda: bare.confirm("a"), lambda: bare.cancel("a"), bare.expire):
        with pytest.raises(PoolGated):
            call()
    for change in (
        lambda: bare.restock(1, restock_id="r"),
        lambda: bare.withdraw(1, withdraw_id="w"),
        lambda: bare.resize(3),
    ):
        with pytest.raises(ChangeGated):
            change()
    assert (pool.state().confirmed, pool.state().stocked) == (2, 20)


def test_a_gate_over_a_pool_without_one_is_refused(store: RedisStore, gate: Gate) -> None:
    bare = Pool(store, "cup")
    bare.open(stock=3, segments=1)
    gated = Pool(store, "cup", gate=gate)
    bare.reserve("a")
    for call in (
        lambda: gated.grant("b"),
        lambda: gated.confirm("a"),
        lambda: gated.cancel("a"),
        lambda: gated.restock(1, restock_id="r"),
        lambda: gated.resize(2),
        gated.expire,
    ):
        with pytest.raises(PoolNotGated):
            call()
    assert bare.confirm("a").state == "confirmed"


@pytest.mark.usefixtures("gate")
def test_what_is_no_gate_is_refused_when_the_pool_is_made(store: RedisStore, order_database: str) -> None:
    engine = connect(order_database)
    for wrong in (order_database, engine, True, Gate, AsyncGate(engine)):
        with pytest.raises(InvalidInput, match=r"^Pool needs a gate such as segmented\.orders\.Gate\(url\)"):
            Pool(store, SKU, gate=wrong)  # type: ignore[arg-type]  # what a program may give by mistake
    with pytest.raises(InvalidInput, match=r"^the order database sqlite:// is not a plain file; "):
        Gate(create_engine("sqlite://"))
    engine.dispose()


@pytest.mark.parametrize(("end", "operation"), [(Pool.confirm, op.Confirm), (Pool.cancel, op.Cancel)])
def test_an_end_by_id_that_races_its_reserve_ends_the_order(
    pool: Pool, gate: Gate, store: RedisStore, end: Callable[[Pool, str], Settled], operation: type[op.Operation[Any]]
) -> None:
    """The order is reserved right after its record was read."""
    overtaken = OvertakenStore(store, operation, 1, lambda: pool.reserve("a"))
    settled = end(Pool(overtaken, SKU, gate=gate), "a")
    is_sold = operation is op.Confirm
    assert settled.state == ("confirmed" if is_sold else "cancelled")
    check(pool, gate, confirmed=int(is_sold), available=20 - is_sold)


@pytest.fixture
def narrow(store: RedisStore, gate: Gate) -> Pool:
    """A pool with one segment."""
    pool = Pool(store, SKU, gate=gate)
    pool.open(stock=20, segments=1)
    return pool


def test_a_database_that_fails_at_the_end_of_a_body_leaves_the_segment_free(
    narrow: Pool, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise DatabaseUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(gate, "confirm_claim", away)
        with pytest.raises(DatabaseUnavailable), narrow.grant("a", timeout=60):
            pass
        patched.setattr(gate, "void", away)
        with pytest.raises(ZeroDivisionError), narrow.grant("b", timeout=60):
            raise ZeroDivisionError
    for order_id in "ab":
        with narrow.grant(order_id, timeout=60):  # a repeat continues at once
            pass
    check(narrow, gate, confirmed=2, available=18)


def test_a_body_that_raises_voids_the_order_and_gives_its_units_back(pool: Pool, gate: Gate) -> None:
    with pytest.raises(ZeroDivisionError), pool.grant("a", quantity=3):
        1 / 0  # noqa: B018  # the body's error
    assert gate.orders(SKU, ["a"])["a"].state == "void"
    check(pool, gate, confirmed=0, available=20)
    answer = pool.grant("a", quantity=3)
    assert isinstance(answer, Decided)
    assert answer.state == "cancelled"


def test_an_unknown_outcome_is_not_voided_and_is_stored_when_it_is_confirmed(
    pool: Pool, gate: Gate, sold: Callable[[], tuple[int, int]]
) -> None:
    with pytest.raises(TimeoutError), pool.grant("a", quantity=3, keep_on=TimeoutError):
        raise TimeoutError
    assert gate.orders(SKU, ["a"]) == {}
    assert (pool.state().reserved, sold()) == (3, (0, 0))
    for order_id in ("b", "c"):  # both segments are free
        assert isinstance(pool.grant(order_id, timeout=0), Grant)
    assert (pool.confirm("a").state, sold()) == ("confirmed", (1, 3))


def test_a_reserved_order_is_stored_when_it_is_confirmed(
    pool: Pool, gate: Gate, sold: Callable[[], tuple[int, int]]
) -> None:
    reserved = pool.reserve(Order("a", 2, "ann"))
    assert isinstance(reserved, Reserved)
    settled = pool.confirm("a")
    assert (settled.state, settled.replay) == ("confirmed", False)
    assert (pool.confirm("a").replay, sold()) == (True, (1, 2))
    assert gate.orders(SKU, ["a"])["a"].customer_id == "ann"
    check(pool, gate, confirmed=2, available=18)


def test_expired_holds_are_voided_and_their_units_go_back(store: RedisStore, gate: Gate) -> None:
    short = Pool(store, SKU, gate=gate)
    short.open(stock=20, segments=2)
    short.reserve(Order("a", 4))
    store.client.zadd(shard_keys(SKU).holds, {"a": 1})  # long due
    ended = short.expire()
    assert [(one.order_id, one.state) for one in ended] == [("a", "expired")]
    check(short, gate, confirmed=0, available=20)


def test_changes_reach_both_sides(pool: Pool, gate: Gate) -> None:
    pool.restock(10, restock_id="r")
    pool.withdraw(5, withdraw_id="w")
    pool.resize(4)
    totals = gate.totals(SKU)
    assert (totals.quota, len(totals.segments), pool.state().segment_count) == (25, 4, 4)
    check(pool, gate, confirmed=0, available=25)
    pool.close()
    assert isinstance(pool.grant("late"), Closed)


def test_a_database_without_rows_of_the_pool_is_refused_before_any_body_runs(
    pool: Pool, store: RedisStore, open_gate: Callable[..., Gate], tmp_path: Path
) -> None:
    empty = open_gate(f"sqlite:///{tmp_path}/empty.db")
    why = "has no rows for 'mug': name the database that the pool was opened with"
    with pytest.raises(RowsMissing, match=why), Pool(store, SKU, gate=empty).grant("a"):
        pytest.fail("the body ran")
    with pool.grant("a", timeout=60):
        pass
