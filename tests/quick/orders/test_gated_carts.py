"""Carts of pools with an order database, and processes that die."""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import redis

from segmented import Pool, RedisStore, protocol as op
from segmented.errors import AlreadySettled, CartDiverged, CartGated, CartUnknown, InvalidInput, PoolFrozen, RowsMissing
from segmented.models import (
    Cart,
    CartDecided,
    CartRecord,
    CartRefused,
    CartReserved,
    CartSettled,
    SoldOut,
    UnfinishedCarts,
)
from segmented.orders import Gate, rebuild, reopen_gated
from segmented.servers import ValkeyServer
from segmented.stock import AsyncCarts, Carts
from tests.support.dying import StepCounter, let_die
from tests.support.pools.both_sides import judged
from tests.support.pools.cart_shop import HOME, LINES, SKUS, SOLD, STATES, Shop, end
from tests.support.pools.cart_sides import judged_carts, lapse_cart, sold_in_sql
from tests.support.pools.fronts import Front, asyncio_side

STEPS_MAX: Final = 200


@pytest.fixture
def empty(store: RedisStore, gate: Gate, valkey: ValkeyServer, order_database: str) -> Iterator[Shop]:
    with RedisStore(valkey.url) as other:
        yield Shop(store, other, gate, valkey.url, order_database)


@pytest.fixture
def shop(empty: Shop) -> Shop:
    """A thousand units of each sku."""
    return empty.open(1_000, *SKUS)


@pytest.fixture
def counter(gate: Gate) -> StepCounter:
    made = StepCounter()
    let_die(gate, made)
    return made


def asked(carts: Carts, how: str, cart: Cart) -> None:
    if how == "reserve":
        carts.reserve(cart)
    else:
        (carts.cancel if how == "cancel" else carts.confirm)(cart.cart_id, home=HOME)


@pytest.mark.parametrize(
    ("dying", "next_call", "ends"),
    [
        ("confirm", "cancel", {"confirmed", "cancelled"}),
        ("confirm", "finish", {"confirmed", "expired"}),
        ("cancel", "confirm", {"cancelled", "confirmed"}),
        ("reserve", "reserve", {"confirmed"}),
        ("reserve", "finish", {"expired"}),
    ],
)
def test_a_process_that_dies_at_any_step_leaves_a_cart_that_ends_as_a_whole(
    dying: str, next_call: str, ends: set[str], shop: Shop, counter: StepCounter
) -> None:
    seen, units, last = set[str](), 0, ("", "")
    for steps in range(1, STEPS_MAX):
        cart = shop.reserved(f"c{steps}") if dying != "reserve" else Cart(f"c{steps}", LINES)
        has_died = shop.dies(counter, steps, partial(asked, how=dying, cart=cart))
        was_sold = shop.sold().get(cart.cart_id)
        assert was_sold in (None, SOLD)
        try:
            state = end(shop.carts(shop.other), next_call, cart, shop.lapse)
        except CartUnknown:  # it died before the first step
            assert dying == "reserve"
            continue
        assert state in ends
        assert (state == "confirmed") >= (was_sold is not None)
        units += 3 * (state == "confirmed")
        seen.add(state)
        last = cart.cart_id, state
        if not has_died:
            break
    assert (seen, 10 < steps < STEPS_MAX - 1) == (ends, True)
    assert STATES[shop.states()[last[0]]] == last[1]
    assert shop.units() == (2_000, units, 2_000 - units)
    shop.check_audits()


@pytest.mark.parametrize("lost", SKUS)
def test_a_pool_rebuilt_between_database_and_record_keeps_the_cart_sold(
    lost: str, shop: Shop, counter: StepCounter
) -> None:
    pool = shop.pools[SKUS.index(lost)].plain
    kept = 0
    for steps in range(1, STEPS_MAX):
        cart = shop.reserved(f"c{steps}")
        has_died = shop.dies(counter, steps, partial(asked, how="confirm", cart=cart))
        kept += cart.cart_id in shop.sold()
        shop.store.execute(op.FreezePool(lost, pool.state().epoch))
        with pytest.raises(PoolFrozen):
            pool.reserve("other")
        rebuild(pool, shop.gate)
        assert shop.carts().confirm(cart.cart_id, home=HOME).state == "confirmed"
        if not has_died:
            break
    assert 1 < kept < steps < STEPS_MAX - 1
    assert set(shop.states().values()) == {"c"}
    assert shop.units()[:2] == (2_000, 3 * steps)


@pytest.mark.parametrize("lost", [("cap",), ("mug",), SKUS])
def test_a_sold_cart_whose_pools_have_lost_all_their_keys_is_still_sold(lost: tuple[str, ...], shop: Shop) -> None:
    cart = shop.reserved("c1")
    assert shop.carts().confirm("c1", home=HOME).is_finished
    with redis.Redis.from_url(shop.server_url) as server:
        for sku in lost:
            server.delete(*server.keys(f"seg:{{{sku}:0}}:*"))
    for sku in lost:
        reopen_gated(Pool(shop.other, sku), shop.gate, segments=4, epoch=2)
    again = shop.carts(shop.other)
    answer = again.reserve(cart)
    assert (type(answer), getattr(answer, "state", None)) == (CartDecided, "confirmed")
    assert again.confirm("c1", home=HOME).replay
    assert shop.sold() == {"c1": SOLD}
    free = [(pool.state().available, pool.state().reserved) for pool in shop.pools]
    assert free == [(999, 0), (998, 0)]


@pytest.mark.parametrize("is_fresh", [False, True])
def test_a_sold_cart_of_a_vanished_pool_is_finished_once_that_is_open_again(shop: Shop, *, is_fresh: bool) -> None:
    cart = shop.reserved("c1")
    assert shop.gate.sell_cart([Pool(shop.store, sku) for sku in SKUS], cart) == "confirmed"
    shop.store.execute(op.DecideCart(HOME, "c1", "confirmed", stored=True))  # its process dies now
    with redis.Redis.from_url(shop.server_url) as server:
        server.delete(*server.keys(f"seg:{{{SKUS[1]}:0}}:*"))
    carts = shop.carts(shop.other if is_fresh else shop.store)
    assert not carts.confirm("c1", home=HOME).is_finished
    with pytest.raises(AlreadySettled, match="confirmed"):
        carts.cancel("c1", home=HOME)
    reopen_gated(Pool(shop.other, SKUS[1]), shop.gate, segments=4, epoch=2)
    assert [one.cart_id for one in carts.finish(HOME).finished] == ["c1"]
    assert carts.confirm("c1", home=HOME).is_finished
    assert shop.sold() == {"c1": SOLD}


def act(carts: Carts, how: str, cart: Cart, shop: Shop, told: dict[str, str]) -> None:
    """Do one step of a random sale, and note the answer."""
    with suppress(AlreadySettled, CartUnknown):
        match how:
            case "reserve":
                carts.reserve(cart)
            case "confirm":
                told[cart.cart_id] = carts.confirm(cart.cart_id, home=cart.home).state
            case "cancel":
                told[cart.cart_id] = carts.cancel(cart.cart_id, home=cart.home).state
            case "finish":
                shop.lapse(cart)
                carts.finish(cart.home)
            case _:
                shop.lapse(cart)
                for pool in shop.pools:
                    pool.expire()


@pytest.mark.parametrize("seed", range(2))
def test_random_carts_with_deaths_sell_what_a_count_of_their_own_says(
    seed: int, empty: Shop, counter: StepCounter
) -> None:
    chance, skus, made, told = random.Random(seed), ("a", "b", "c"), list[Cart](), dict[str, str]()
    shop = empty.open(30, *skus)
    for number in range(60):
        if not made or chance.random() < 0.6:
            lines = [(sku, chance.randint(1, 3)) for sku in chance.sample(skus, k=chance.randint(1, 3))]
            made.append(Cart(f"c{number}", lines))
            cart, how = made[-1], "reserve"
        else:
            cart, how = chance.choice(made), chance.choice(["confirm", "confirm", "cancel", "finish", "expire"])
        steps = chance.choice([None, chance.randint(1, 60)])
        shop.dies(counter, steps, partial(act, how=how, cart=cart, shop=shop, told=told))
        shop.states(are_all_final=False)
    for cart in made:
        shop.lapse(cart)
    for sku in skus:
        assert shop.carts().finish(sku).failed == ()
    states, sold = shop.states(), shop.sold()
    for cart in made:
        state = STATES.get(states.get(cart.cart_id, ""))
        assert told.get(cart.cart_id, state) == state
        assert sold.get(cart.cart_id) == (dict(cart.lines) if state == "confirmed" else None)
    units = sum(quantity for lines in sold.values() for quantity in lines.values())
    assert units > 0
    assert shop.units() == (90, units, 90 - units)
    shop.check_audits()


CART_SKUS: Final = ("cap", "mug", "shirt")
CART_HOME: Final = "cap"
CART_LINES: Final = [("shirt", 3), ("cap", 1), ("mug", 2)]
SOLD_CART: Final = {"cap": 1, "mug": 2, "shirt": 3}


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pools(store: RedisStore, gate: Gate) -> dict[str, Pool]:
    """Ten units of each sku, on both sides."""
    made = {sku: Pool(store, sku, gate=gate) for sku in CART_SKUS}
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


def reserved(front: Front, cart_id: str, lines: list[tuple[str, int]] = CART_LINES) -> Cart:
    cart = Cart(cart_id, lines)
    assert isinstance(front.call("reserve", cart), CartReserved)
    return cart


def test_a_cart_is_stored_as_a_whole_and_then_confirmed_in_every_pool(
    fronts: tuple[Front, Front], judge: Callable[[], tuple[int, int, int]], order_database: str
) -> None:
    gated, _ = fronts
    reserved(gated, "c1")
    assert judge() == (30, 0, 24)
    assert gated.call("confirm", "c1", home=CART_HOME) == CartSettled("c1", "confirmed", replay=False, is_finished=True)
    assert (judge(), sold_in_sql(order_database)) == ((30, 6, 24), {"c1": SOLD_CART})
    assert gated.call("confirm", "c1", home=CART_HOME) == CartSettled("c1", "confirmed", replay=True, is_finished=True)
    with pytest.raises(AlreadySettled):
        gated.call("cancel", "c1", home=CART_HOME)
    assert gated.call("reserve", Cart("c1", CART_LINES)) == CartDecided(
        "c1", "confirmed", replay=True, is_finished=True
    )
    assert judge() == (30, 6, 24)


def test_a_changed_cart_is_stored_and_sold_with_what_it_keeps(
    fronts: tuple[Front, Front], valkey: ValkeyServer, order_database: str
) -> None:
    gated, _ = fronts
    cart = reserved(gated, "c1")
    kept = tuple((sku, 1) for sku, _ in cart.lines)
    for is_replay in (False, True):
        assert gated.call("change", "c1", kept, home=CART_HOME) == CartReserved(
            "c1", CART_HOME, cart.order_id, kept, is_replay
        )
    assert judged(valkey.url, order_database) == (30, 0, 27)
    assert gated.call("confirm", "c1", home=CART_HOME) == CartSettled("c1", "confirmed", replay=False, is_finished=True)
    assert (judged(valkey.url, order_database), sold_in_sql(order_database)) == ((30, 3, 27), {"c1": dict(kept)})
    with pytest.raises(AlreadySettled):
        gated.call("change", "c1", kept, home=CART_HOME)


def test_a_cart_that_is_cancelled_is_void_as_a_whole_before_its_units_go_back(
    fronts: tuple[Front, Front], judge: Callable[[], tuple[int, int, int]], gate: Gate
) -> None:
    gated, _ = fronts
    cart = reserved(gated, "c1")
    assert gated.call("cancel", "c1", home=CART_HOME) == CartSettled("c1", "cancelled", replay=False, is_finished=True)
    assert judge() == (30, 0, 30)
    assert [gate.orders(sku, [cart.order_id])[cart.order_id].state for sku in CART_SKUS] == ["void"] * 3
    with pytest.raises(AlreadySettled):
        gated.call("confirm", "c1", home=CART_HOME)


def test_a_cart_of_which_the_database_refuses_one_line_is_not_sold_at_all(
    fronts: tuple[Front, Front], judge: Callable[[], tuple[int, int, int]], gate: Gate
) -> None:
    gated, _ = fronts
    cart = reserved(gated, "c1")
    gate.void(order_id=cart.order_id, sku="mug", quantity=2)  # its pool's sweep died then
    with pytest.raises(AlreadySettled) as caught:
        gated.call("confirm", "c1", home=CART_HOME)
    assert (caught.value.state, gate.confirmed_units("cap")) == ("cancelled", 0)
    assert judge() == (30, 0, 30)


def test_a_cart_that_the_database_cannot_store_is_void_after_the_rebuild(
    fronts: tuple[Front, Front], gate: Gate, pools: dict[str, Pool]
) -> None:
    gated, _ = fronts
    reserved(gated, "c1")
    gate.confirm(order_id="lost", sku="mug", segment=0, quantity=9, epoch=1)  # of which Redis knows nothing
    with pytest.raises(PoolFrozen):
        gated.call("confirm", "c1", home=CART_HOME)
    assert gated.call("read", "c1", home=CART_HOME).state == "reserved"
    assert [gate.confirmed_units(sku) for sku in CART_SKUS] == [0, 9, 0]
    rebuild(pools["mug"].plain, gate)
    with pytest.raises(AlreadySettled) as caught:
        gated.call("confirm", "c1", home=CART_HOME)
    assert caught.value.state == "cancelled"
    assert [gate.confirmed_units(sku) for sku in CART_SKUS] == [0, 9, 0]
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
    assert gated.call("cancel", "c1", home=CART_HOME) == CartSettled("c1", "cancelled", replay=False, is_finished=False)
    assert [pool.state().available for pool in pools.values()] == [10, 8, 10]
    sweep = gated.call("finish", CART_HOME)
    assert (sweep.finished, [(each, type(error)) for each, error in sweep.failed]) == ((), [("c1", PoolFrozen)])
    rebuild(pools["mug"].plain, gate)
    assert [one.state for one in gated.call("finish", CART_HOME).finished] == ["cancelled"]
    assert judge() == (30, 0, 30)


def test_a_cart_with_a_line_that_was_confirmed_by_hand_is_sold_as_a_whole_or_says_so(
    fronts: tuple[Front, Front], judge: Callable[[], tuple[int, int, int]], pools: dict[str, Pool]
) -> None:
    gated, _ = fronts
    cart = reserved(gated, "c1")
    pools["mug"].confirm(cart.order_id)
    with pytest.raises(CartDiverged, match="cart 'c1' is not sold, but its line in the pool 'mug' is sold"):
        gated.call("cancel", "c1", home=CART_HOME)
    assert gated.call("confirm", "c1", home=CART_HOME).state == "confirmed"
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
        "reserve": lambda: bare.call("reserve", Cart("c2", CART_LINES)),
        "reserve again": lambda: bare.call("reserve", cart),
        "cancel": lambda: bare.call("cancel", "c1", home=CART_HOME),
        "confirm": lambda: bare.call("confirm", "c1", home=CART_HOME),
    }
    for ask in refused.values():
        with pytest.raises(CartGated, match=r"must decide cart 'c\d' first; use Carts\(store, gate=gate\)"):
            ask()
        assert judge() == (30, 0, 24)
    assert isinstance(bare.call("read", "c1", home=CART_HOME), CartRecord)
    assert bare.call("read", "c1", home=CART_HOME).state == "reserved"
    assert isinstance(bare.call("unfinished", CART_HOME), UnfinishedCarts)
    lapse_cart(valkey.url, cart)
    sweep = bare.call("finish", CART_HOME)
    assert (sweep.finished, [(each, type(error)) for each, error in sweep.failed]) == ((), [("c1", CartGated)])
    assert judge() == (30, 0, 24)
    assert [one.cart_id for one in gated.call("finish", CART_HOME).finished] == ["c1"]
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
