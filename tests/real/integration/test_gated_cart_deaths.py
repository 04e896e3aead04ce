"""Carts over gated pools while processes die, race and forget: SQL has all lines of a cart or none; Redis follows."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
import redis

from segmented import Pool, RedisStore, protocol as op
from segmented.errors import AlreadySettled, CartUnknown, PoolFrozen, RowsMissing
from segmented.models import Cart, CartDecided, CartReserved
from segmented.orders import rebuild, reopen_gated
from segmented.stock import Carts
from tests.support.dying import Died, DyingStore, StepCounter, let_die
from tests.support.pools.both_sides import judged
from tests.support.pools.cart_sides import judged_carts, lapse_cart, sold_in_sql
from tests.support.pools.forgetting import forgotten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from segmented.orders import Gate
    from segmented.servers import ValkeyServer

SKUS: Final = ("cap", "mug")
HOME: Final = "cap"
LINES: Final = [("mug", 2), ("cap", 1)]
SOLD: Final = {"cap": 1, "mug": 2}
STEPS_MAX: Final = 200
STATES: Final = {"c": "confirmed", "x": "cancelled", "e": "expired", "f": "refused"}


@dataclass
class Shop:
    """Pools on both sides, and two processes; the second has seen nothing of the pools."""

    store: RedisStore
    other: RedisStore
    gate: Gate
    server_url: str
    database: str
    pools: list[Pool] = field(default_factory=list)

    def open(self, stock: int, *skus: str) -> Shop:
        for sku in skus:
            self.pools.append(Pool(self.store, sku, gate=self.gate))
            self.pools[-1].open(stock=stock, segments=4)
        return self

    def carts(self, store: object = None) -> Carts:
        return Carts(store or self.store, gate=self.gate)  # type: ignore[arg-type]  # a store that dies

    def reserved(self, cart_id: str) -> Cart:
        cart = Cart(cart_id, LINES)
        assert isinstance(self.carts().reserve(cart), CartReserved)
        return cart

    def lapse(self, cart: Cart) -> None:
        lapse_cart(self.server_url, cart)

    def sold(self) -> dict[str, dict[str, int]]:
        return sold_in_sql(self.database)

    def units(self, *, forgets: bool = False) -> tuple[int, int, int]:
        return judged(self.server_url, self.database, forgets=forgets)

    def states(self, *, are_all_final: bool = True) -> dict[str, str]:
        return judged_carts(self.server_url, self.database, are_all_final=are_all_final)

    def check_audits(self) -> None:
        assert all(pool.audit().is_clean for pool in self.pools)

    def dies(self, counter: StepCounter, steps: int | None, act: Callable[[Carts], object]) -> bool:
        """Do it in a process that dies at a step; return whether it died."""
        counter.counted, counter.steps = 0, steps
        try:
            act(self.carts(DyingStore(self.store, counter)))
        except Died:
            return True
        finally:
            counter.steps = None
        return False


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


def end(carts: Carts, how: str, cart: Cart, lapse: Callable[[Cart], None]) -> str:
    """End a cart in one way, as another process does; return its state."""
    if how == "finish":
        lapse(cart)
        carts.finish(HOME)
    else:
        if how == "reserve":
            carts.reserve(cart)
        with suppress(AlreadySettled):
            (carts.cancel if how == "cancel" else carts.confirm)(cart.cart_id, home=HOME)
    return carts.read(cart.cart_id, home=HOME).state


def asked(carts: Carts, how: str, cart: Cart) -> None:
    if how == "reserve":
        carts.reserve(cart)
    else:
        (carts.cancel if how == "cancel" else carts.confirm)(cart.cart_id, home=HOME)


@pytest.mark.parametrize(
    ("dying", "next_call", "ends"),
    [
        ("confirm", "confirm", {"confirmed"}),
        ("confirm", "cancel", {"confirmed", "cancelled"}),
        ("confirm", "finish", {"confirmed", "expired"}),
        ("cancel", "cancel", {"cancelled"}),
        ("cancel", "confirm", {"cancelled", "confirmed"}),
        ("cancel", "finish", {"cancelled", "expired"}),
        ("reserve", "reserve", {"confirmed"}),
        ("reserve", "finish", {"expired"}),
    ],
)
def test_a_process_that_dies_at_any_step_leaves_a_cart_that_the_next_call_ends_as_a_whole(
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
def test_a_pool_that_is_rebuilt_between_the_database_and_its_record_keeps_the_cart_sold(
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
def test_a_sold_cart_of_which_one_pool_has_vanished_is_confirmed_and_finished_once_it_is_open_again(
    shop: Shop, *, is_fresh: bool
) -> None:
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
def test_a_sold_cart_of_which_one_pool_lost_its_line_is_still_sold_once_the_pool_is_rebuilt(
    lost: str, shop: Shop
) -> None:
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


def test_a_race_of_confirm_cancel_and_sweep_has_one_winner_in_both_stores(shop: Shop) -> None:
    winners: Counter[str] = Counter()
    for number in range(40):
        cart = shop.reserved(f"c{number}")
        shop.lapse(cart)
        start = threading.Barrier(3)

        def race(how: str, cart: Cart = cart, start: threading.Barrier = start) -> str:
            carts = shop.carts(shop.other if how == "cancel" else shop.store)
            start.wait()
            return end(carts, how, cart, lambda _: None)

        with ThreadPoolExecutor(3) as racers:
            (state,) = set(racers.map(race, ("confirm", "cancel", "finish")))
        winners[state] += 1
    shop.carts().finish(HOME)
    states = shop.states()
    assert Counter(STATES[state] for state in states.values()) == winners
    units = 3 * winners["confirmed"]
    assert (len(states), shop.units()) == (40, (2_000, units, 2_000 - units))
    shop.check_audits()


def test_a_race_of_confirm_and_the_sweeps_of_the_pools_sells_a_cart_as_a_whole_or_not_at_all(shop: Shop) -> None:
    told: dict[str, str] = {}
    for number in range(40):
        cart = shop.reserved(f"c{number}")
        shop.lapse(cart)
        start = threading.Barrier(2)

        def sweep(start: threading.Barrier = start) -> None:
            start.wait()
            for pool in reversed(shop.pools):
                pool.expire()

        def confirm(cart: Cart = cart, start: threading.Barrier = start) -> str:
            start.wait()
            return end(shop.carts(shop.other), "confirm", cart, lambda _: None)

        with ThreadPoolExecutor(2) as racers:
            swept, state = racers.submit(sweep), racers.submit(confirm)
        swept.result()
        told[cart.cart_id] = state.result()
    assert {STATES[state] for state in shop.states().values()} <= {"confirmed", "cancelled", "expired"}
    assert {each: STATES[state] for each, state in shop.states().items()} == told
    units = 3 * list(told.values()).count("confirmed")
    assert shop.units() == (2_000, units, 2_000 - units)
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


def test_many_buyers_at_once_of_carts_that_share_skus_sell_exactly_the_stock(empty: Shop) -> None:
    skus = ("a", "b", "c")
    empty.open(40, *skus)
    carts = empty.carts()

    def buy(buyer: int) -> Counter[str]:
        chance, bought = random.Random(buyer), Counter[str]()
        for number in range(40):
            lines = [(sku, 1) for sku in chance.sample(skus, k=chance.choice([1, 2, 2, 3]))]
            cart = Cart(f"{buyer}-{number}", lines)
            if carts.reserve(cart) and carts.confirm(cart.cart_id, home=cart.home):
                bought.update(dict(cart.lines))
        return bought

    with ThreadPoolExecutor(8) as buyers:
        bought = sum(buyers.map(buy, range(8)), Counter[str]())
    for number in range(120 - bought.total()):  # the last units may have been in carts that were refused elsewhere
        sku = next(sku for sku in skus if bought[sku] < 40)
        cart = Cart(f"rest-{number}", [(sku, 1)])
        assert carts.reserve(cart)
        assert carts.confirm(cart.cart_id, home=cart.home)
        bought[sku] += 1
    assert bought == {"a": 40, "b": 40, "c": 40}
    assert empty.units() == (120, 120, 0)
    assert set(empty.states().values()) == {"c", "f"}


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


@pytest.mark.parametrize("seed", range(6))
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
