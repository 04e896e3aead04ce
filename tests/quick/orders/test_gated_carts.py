"""Carts over gated pools: every public call with its gate and without, sync and asyncio, as SQL and Redis say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from segmented import Gate, Pool, RedisStore, protocol as op
from segmented.errors import (
    AlreadySettled,
    CartDiverged,
    CartGated,
    CartUnknown,
    DatabaseUnavailable,
    InvalidInput,
    PoolFrozen,
    RowsMissing,
)
from segmented.models import (
    Cart,
    CartDecided,
    CartRecord,
    CartRefused,
    CartReserved,
    CartSettled,
    CartSweep,
    SoldOut,
    UnfinishedCarts,
)
from segmented.orders import rebuild
from segmented.stock import AsyncCarts, Carts
from tests.support.pools.both_sides import judged
from tests.support.pools.cart_sides import judged_carts, lapse_cart, sold_in_sql
from tests.support.pools.fronts import Front, asyncio_side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from segmented.servers import ValkeyServer

SKUS: Final = ("cap", "mug", "shirt")
HOME: Final = "cap"
LINES: Final = [("shirt", 3), ("cap", 1), ("mug", 2)]
SOLD: Final = {"cap": 1, "mug": 2, "shirt": 3}


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pools(store: RedisStore, gate: Gate) -> dict[str, Pool]:
    """Ten units of each sku, on both sides."""
    made = {sku: Pool(store, sku, gate=gate) for sku in SKUS}
    for pool in made.values():
        pool.open(stock=10, segments=3)
    return made


@pytest.fixture
def fronts(
    valkey: ValkeyServer, store: RedisStore, pools: dict[str, Pool], gate: Gate, order_database: str, colour: str
) -> Iterator[tuple[Front, Front]]:
    """The same carts with their gate and without."""
    assert len(pools) == 3
    if colour == "sync":
        yield Front(Carts(store, gate=gate), None), Front(Carts(store), None)
        return
    with asyncio_side(valkey.url, order_database) as (loop, its_store, its_gate):
        yield Front(AsyncCarts(its_store, gate=its_gate), loop), Front(AsyncCarts(its_store), loop)


@pytest.fixture
def judge(valkey: ValkeyServer, order_database: str) -> Callable[[], tuple[int, int, int]]:
    """Both judges: units of all pools, stocked, sold and free, with every cart final."""

    def judge_both() -> tuple[int, int, int]:
        judged_carts(valkey.url, order_database, are_all_final=False)
        return judged(valkey.url, order_database)

    return judge_both


def reserved(front: Front, cart_id: str, lines: list[tuple[str, int]] = LINES) -> Cart:
    cart = Cart(cart_id, lines)
    assert isinstance(front.call("reserve", cart), CartReserved)
    return cart


def test_a_cart_is_stored_as_a_whole_and_then_confirmed_in_every_pool(
    fronts: tuple[Front, Front], judge: Callable[[], tuple[int, int, int]], order_database: str
) -> None:
    gated, _ = fronts
    reserved(gated, "c1")
    assert judge() == (30, 0, 24)
    assert gated.call("confirm", "c1", home=HOME) == CartSettled("c1", "confirmed", replay=False, is_finished=True)
    assert (judge(), sold_in_sql(order_database)) == ((30, 6, 24), {"c1": SOLD})
    assert gated.call("confirm", "c1", home=HOME) == CartSettled("c1", "confirmed", replay=True, is_finished=True)
    with pytest.raises(AlreadySettled):
        gated.call("cancel", "c1", home=HOME)
    assert gated.call("reserve", Cart("c1", LINES)) == CartDecided("c1", "confirmed", replay=True, is_finished=True)
    assert judge() == (30, 6, 24)


def test_a_cart_that_is_cancelled_is_void_as_a_whole_before_its_units_go_back(
    fronts: tuple[Front, Front], judge: Callable[[], tuple[int, int, int]], gate: Gate
) -> None:
    gated, _ = fronts
    cart = reserved(gated, "c1")
    assert gated.call("cancel", "c1", home=HOME) == CartSettled("c1", "cancelled", replay=False, is_finished=True)
    assert judge() == (30, 0, 30)
    assert [gate.orders(sku, [cart.order_id])[cart.order_id].state for sku in SKUS] == ["void"] * 3
    with pytest.raises(AlreadySettled):
        gated.call("confirm", "c1", home=HOME)


def test_a_cart_that_is_refused_takes_nothing_and_one_refused_at_once_leaves_no_row(
    fronts: tuple[Front, Front], judge: Callable[[], tuple[int, int, int]], gate: Gate
) -> None:
    gated, _ = fronts
    last, first = Cart("last", [("cap", 1), ("shirt", 11)]), Cart("first", [("cap", 11), ("shirt", 1)])
    for cart, sku in ((last, "shirt"), (first, "cap")):
        answer = gated.call("reserve", cart)
        assert isinstance(answer, CartRefused)
        assert (answer.sku, type(answer.refusal)) == (sku, SoldOut)
        assert gated.call("read", cart.cart_id, home=HOME).is_finished
    assert judge() == (30, 0, 30)
    assert [len(gate.orders("cap", [cart.order_id])) for cart in (last, first)] == [1, 0]


def test_a_cart_whose_hold_is_over_is_voided_by_a_sweep_and_a_repeat_learns_it(
    fronts: tuple[Front, Front], judge: Callable[[], tuple[int, int, int]], valkey: ValkeyServer
) -> None:
    gated, _ = fronts
    cart, late = reserved(gated, "c1"), reserved(gated, "c2")
    lapse_cart(valkey.url, cart)
    lapse_cart(valkey.url, late)
    assert gated.call("reserve", late) == CartDecided("c2", "expired", replay=False, is_finished=True)
    sweep = gated.call("finish", HOME)
    assert sweep == CartSweep((CartSettled("c1", "expired", replay=False, is_finished=True),), ())
    assert judge() == (30, 0, 30)
    with pytest.raises(AlreadySettled) as caught:
        gated.call("confirm", "c1", home=HOME)
    assert caught.value.state == "expired"


def test_a_line_that_its_own_pool_expired_takes_the_whole_cart_with_it(
    fronts: tuple[Front, Front],
    judge: Callable[[], tuple[int, int, int]],
    valkey: ValkeyServer,
    pools: dict[str, Pool],
) -> None:
    gated, _ = fronts
    cart = reserved(gated, "c1")
    lapse_cart(valkey.url, cart)
    assert [one.order_id for one in pools["mug"].expire()] == [cart.order_id]
    with pytest.raises(AlreadySettled) as caught:
        gated.call("confirm", "c1", home=HOME)
    assert caught.value.state == "expired"
    assert judge() == (30, 0, 30)


def test_a_cart_of_which_the_database_refuses_one_line_is_not_sold_at_all(
    fronts: tuple[Front, Front], judge: Callable[[], tuple[int, int, int]], gate: Gate
) -> None:
    gated, _ = fronts
    cart = reserved(gated, "c1")
    gate.void(order_id=cart.order_id, sku="mug", quantity=2)  # its pool's sweep died then
    with pytest.raises(AlreadySettled) as caught:
        gated.call("confirm", "c1", home=HOME)
    assert (caught.value.state, gate.confirmed_units("cap")) == ("cancelled", 0)
    assert judge() == (30, 0, 30)


def test_a_cart_that_the_database_cannot_store_is_void_after_the_rebuild(
    fronts: tuple[Front, Front], gate: Gate, pools: dict[str, Pool]
) -> None:
    gated, _ = fronts
    reserved(gated, "c1")
    gate.confirm(order_id="lost", sku="mug", segment=0, quantity=9, epoch=1)  # of which Redis knows nothing
    with pytest.raises(PoolFrozen):
        gated.call("confirm", "c1", home=HOME)
    assert gated.call("read", "c1", home=HOME).state == "reserved"
    assert [gate.confirmed_units(sku) for sku in SKUS] == [0, 9, 0]
    rebuild(pools["mug"].plain, gate)
    with pytest.raises(AlreadySettled) as caught:
        gated.call("confirm", "c1", home=HOME)
    assert caught.value.state == "cancelled"
    assert [gate.confirmed_units(sku) for sku in SKUS] == [0, 9, 0]
    assert [(pool.state().available, pool.state().reserved) for pool in pools.values()] == [(10, 0), (1, 0), (10, 0)]


def test_a_cart_decided_while_a_pool_is_frozen_is_finished_after_the_rebuild(
    fronts: tuple[Front, Front],
    judge: Callable[[], tuple[int, int, int]],
    store: RedisStore,
    gate: Gate,
    pools: dict[str, Pool],
) -> None:
    gated, _ = fronts
    reserved(gated, "c1")
    store.execute(op.FreezePool("mug", 1))
    assert gated.call("cancel", "c1", home=HOME) == CartSettled("c1", "cancelled", replay=False, is_finished=False)
    assert [pool.state().available for pool in pools.values()] == [10, 8, 10]
    sweep = gated.call("finish", HOME)
    assert (sweep.finished, [(each, type(error)) for each, error in sweep.failed]) == ((), [("c1", PoolFrozen)])
    rebuild(pools["mug"].plain, gate)
    assert [one.state for one in gated.call("finish", HOME).finished] == ["cancelled"]
    assert judge() == (30, 0, 30)


def test_a_cart_with_a_line_that_was_confirmed_by_hand_is_sold_as_a_whole_or_says_so(
    fronts: tuple[Front, Front], judge: Callable[[], tuple[int, int, int]], pools: dict[str, Pool]
) -> None:
    gated, _ = fronts
    cart = reserved(gated, "c1")
    pools["mug"].confirm(cart.order_id)
    with pytest.raises(CartDiverged, match="cart 'c1' is not sold, but its line in the pool 'mug' is sold"):
        gated.call("cancel", "c1", home=HOME)
    assert gated.call("confirm", "c1", home=HOME).state == "confirmed"
    assert judge() == (30, 6, 24)


def test_without_the_gate_calls_that_take_or_decide_are_refused_and_reads_are_not(
    fronts: tuple[Front, Front],
    judge: Callable[[], tuple[int, int, int]],
    valkey: ValkeyServer,
    pools: dict[str, Pool],
) -> None:
    gated, bare = fronts
    cart = reserved(gated, "c1")
    refused: dict[str, Callable[[], object]] = {
        "reserve": lambda: bare.call("reserve", Cart("c2", LINES)),
        "reserve again": lambda: bare.call("reserve", cart),
        "cancel": lambda: bare.call("cancel", "c1", home=HOME),
        "confirm": lambda: bare.call("confirm", "c1", home=HOME),
    }
    for ask in refused.values():
        with pytest.raises(CartGated, match=r"must decide cart 'c\d' first; use Carts\(store, gate=gate\)"):
            ask()
        assert judge() == (30, 0, 24)
    assert isinstance(bare.call("read", "c1", home=HOME), CartRecord)
    assert bare.call("read", "c1", home=HOME).state == "reserved"
    assert isinstance(bare.call("unfinished", HOME), UnfinishedCarts)
    lapse_cart(valkey.url, cart)
    sweep = bare.call("finish", HOME)
    assert (sweep.finished, [(each, type(error)) for each, error in sweep.failed]) == ((), [("c1", CartGated)])
    assert judge() == (30, 0, 24)
    assert [one.cart_id for one in gated.call("finish", HOME).finished] == ["c1"]
    assert judge() == (30, 0, 30)
    assert all(pool.audit().is_clean for pool in pools.values())


def test_a_cart_with_a_pool_that_has_no_order_database_is_refused_in_one_sentence(
    fronts: tuple[Front, Front], store: RedisStore, gate: Gate
) -> None:
    gated, _ = fronts
    Pool(store, "plain").open(stock=10, segments=1)
    for lines in ([("cap", 1), ("plain", 1)], [("plain", 1)]):
        with pytest.raises(InvalidInput, match=r"^pool 'plain' has no order database, so cart 'c1' cannot be sold"):
            gated.call("reserve", Cart("c1", lines))
    assert (Pool(store, "cap").state().available, Pool(store, "plain").state().available) == (10, 10)
    assert gate.confirmed_units("cap") == 0


def test_a_cart_with_a_pool_of_another_database_is_refused_before_anything_is_taken(
    fronts: tuple[Front, Front], store: RedisStore, tmp_path: Path
) -> None:
    gated, _ = fronts
    with Gate(f"sqlite:///{tmp_path / 'other.db'}") as other:
        other.create()
        Pool(store, "scarf", gate=other).open(stock=10, segments=1)
        with pytest.raises(RowsMissing, match="'scarf'"):
            gated.call("reserve", Cart("c1", [("cap", 1), ("scarf", 1)]))
    assert (Pool(store, "cap").state().available, Pool(store, "scarf").state().available) == (10, 10)
    with pytest.raises(CartUnknown):
        gated.call("read", "c1", home="cap")


def test_carts_that_share_skus_sell_the_last_unit_although_quota_has_to_move(
    fronts: tuple[Front, Front], judge: Callable[[], tuple[int, int, int]]
) -> None:
    gated, _ = fronts
    for number in range(5):
        reserved(gated, f"c{number}", [("cap", 2), ("shirt", 2)])
        assert gated.call("confirm", f"c{number}", home=HOME).state == "confirmed"
    assert isinstance(gated.call("reserve", Cart("late", [("cap", 1), ("shirt", 1)])), CartRefused)
    assert judge() == (30, 20, 10)


def test_while_the_database_hangs_a_cart_stays_reserved_and_the_next_call_goes_on(
    store: RedisStore, gate: Gate, open_gate: Callable[..., Gate], pools: dict[str, Pool], order_database: str
) -> None:
    carts, hasty = (Carts(store, gate=one) for one in (gate, open_gate(order_database, timeout=0.1)))
    assert isinstance(carts.reserve(Cart("c1", LINES)), CartReserved)
    with gate.transaction(order_id="slow", sku="shirt", segment=0, quantity=1, epoch=1):
        with pytest.raises(DatabaseUnavailable):
            hasty.confirm("c1", home=HOME)
        assert carts.read("c1", home=HOME).state == "reserved"
    assert gate.confirmed_units("cap") == 0
    assert carts.confirm("c1", home=HOME) == CartSettled("c1", "confirmed", replay=False, is_finished=True)
    assert [pool.state().confirmed for pool in pools.values()] == [1, 2, 3]
