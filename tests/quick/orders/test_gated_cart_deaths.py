"""Carts over gated pools while processes die, race and forget: SQL has all lines of a cart or none; Redis follows."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
import redis

from segmented import Pool, RedisStore, protocol as op
from segmented.errors import AlreadySettled, CartUnknown, PoolFrozen, RowsMissing
from segmented.models import Cart, CartDecided
from segmented.orders import rebuild, reopen_gated
from segmented.stock import Carts
from tests.support.dying import StepCounter, let_die
from tests.support.pools.cart_shop import HOME, LINES, SKUS, SOLD, STATES, Shop, end
from tests.support.pools.forgetting import forgotten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from segmented.orders import Gate
    from segmented.servers import ValkeyServer

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


@pytest.mark.parametrize("lost", SKUS)
def test_a_sold_cart_of_which_a_pool_lost_its_line_is_sold_after_the_rebuild(lost: str, shop: Shop) -> None:
    with forgotten(shop.pools[SKUS.index(lost)]):
        shop.reserved("c1")
        assert shop.carts().confirm("c1", home=HOME).is_finished
    with pytest.raises(PoolFrozen):
        Pool(shop.store, lost, gate=shop.gate).reserve("other")
    rebuild(Pool(shop.other, lost), shop.gate)
    again = shop.carts(shop.other)
    assert again.confirm("c1", home=HOME).replay
    assert (shop.sold(), again.read("c1", home=HOME).state) == ({"c1": SOLD}, "confirmed")
    assert shop.units(forgets=True) == (2_000, 3, 1_997)
    shop.check_audits()


def test_a_gate_of_another_database_decides_no_cart(shop: Shop, open_gate: Callable[..., Gate], tmp_path: Path) -> None:
    cart = shop.reserved("c1")
    other = open_gate(f"sqlite:///{tmp_path}/other.sqlite")
    carts = Carts(shop.store, gate=other)
    for ask in (
        lambda: carts.reserve(Cart("c2", LINES)),
        lambda: carts.confirm("c1", home=HOME),
        lambda: carts.cancel("c1", home=HOME),
    ):
        with pytest.raises(RowsMissing):
            ask()
    shop.carts().cancel("c1", home=HOME)
    shop.lapse(cart)
    assert (other.orders(HOME, [cart.order_id]), shop.carts().read("c1", home=HOME).state) == ({}, "cancelled")
    assert shop.units() == (2_000, 0, 2_000)


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
