"""Carts and shards of gated pools under races and crowds, on PostgreSQL: one winner, and exactly the stock is sold."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from segmented import Pool, RedisStore
from segmented.models import Cart, CartReserved
from segmented.orders import Gate
from segmented.servers import ValkeyServer
from segmented.stock import Carts
from tests.support.dying import StepCounter, let_die
from tests.support.pools.cart_shop import HOME, SKUS, STATES, Shop, end


@pytest.fixture
def order_database(postgres_database: str) -> str:
    return postgres_database


@pytest.fixture
def gate(order_database: str, open_gate: Callable[..., Gate]) -> Gate:
    """A gate whose transactions wait for each other even while the process that runs them all stands still."""
    return open_gate(order_database, timeout=120.0)


@pytest.fixture
def empty(store: RedisStore, gate: Gate, valkey: ValkeyServer, order_database: str) -> Iterator[Shop]:
    with RedisStore(valkey.url) as other:
        yield Shop(store, other, gate, valkey.url, order_database)


@pytest.fixture
def shop(empty: Shop) -> Shop:
    """A thousand units of each sku."""
    return empty.open(1_000, *SKUS)


def test_a_race_of_confirm_cancel_and_sweep_has_one_winner_in_both_stores(shop: Shop) -> None:
    winners: Counter[str] = Counter()
    for number in range(20):
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
    assert (len(states), shop.units()) == (20, (2_000, units, 2_000 - units))
    shop.check_audits()


def test_a_race_of_confirm_and_sweeps_sells_a_cart_as_a_whole_or_not_at_all(shop: Shop) -> None:
    told: dict[str, str] = {}
    for number in range(20):
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


def test_a_cart_of_three_lines_is_stored_in_eleven_round_trips(store: RedisStore, gate: Gate) -> None:
    lines = [("shirt", 3), ("cap", 1), ("mug", 2)]
    for sku, _ in lines:
        Pool(store, sku, gate=gate).open(stock=10, segments=3)
    carts, counter = Carts(store, gate=gate), StepCounter()
    assert isinstance(carts.reserve(Cart("c1", lines)), CartReserved)
    let_die(gate, counter)
    assert carts.confirm("c1", home=HOME).state == "confirmed"
    assert counter.counted == 2 * 10 + 1  # before and after each statement, and before the commit
