"""Carts and shards of gated pools under races and crowds, on PostgreSQL: one winner, and exactly the stock is sold."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest

from segmented import Pool, RedisStore, Reserved, SoldOut
from segmented.errors import InvalidInput
from segmented.models import Cart, CartReserved
from segmented.orders import audit_both, forget, forgetting, open_gated, relay
from segmented.stock import Carts, ShardedPool
from tests.support.dying import StepCounter, let_die
from tests.support.pools.both_sides import judged
from tests.support.pools.cart_shop import HOME, SKUS, STATES, Shop, end
from tests.support.pools.forgetting import SKU, sell
from tests.support.pools.gated_shop import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.orders import Gate
    from segmented.servers import ValkeyServer

BUYERS: Final = 6


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


@pytest.mark.usefixtures("patient_shards")
def test_many_buyers_at_once_sell_exactly_the_stock_over_all_shards(
    store: RedisStore, gate: Gate, valkey: ValkeyServer, order_database: str
) -> None:
    ShardedPool(store, SKU, gate=gate).open(stock=240, segments=6, shards=3)
    refused: list[int] = []

    def buy(buyer: int) -> None:
        pool, chance = ShardedPool(store, SKU, gate=gate), random.Random(buyer)
        for number in range(240):
            order_id, quantity = f"{buyer}-{number}", chance.randint(1, 6)
            answer = pool.reserve(order_id, quantity=quantity)
            if isinstance(answer, SoldOut):
                refused.append(answer.available)
                if quantity == 1:
                    return
            elif isinstance(answer, Reserved):
                (pool.cancel if chance.random() < 0.2 else pool.confirm)(order_id)

    with ThreadPoolExecutor(BUYERS) as threads:
        list(threads.map(buy, range(BUYERS)))
    pool = ShardedPool(store, SKU, gate=gate)
    pool.finish_transfers()
    for number in range(pool.available()):  # given back after the last buyer left
        pool.reserve(f"rest-{number}")
        pool.confirm(f"rest-{number}")
    assert judged(valkey.url, order_database) == (240, 240, 0)
    assert (len(refused) >= BUYERS, pool.audit().is_clean) == (True, True)


def test_a_cart_of_three_lines_is_stored_in_eleven_round_trips(store: RedisStore, gate: Gate) -> None:
    lines = [("shirt", 3), ("cap", 1), ("mug", 2)]
    for sku, _ in lines:
        Pool(store, sku, gate=gate).open(stock=10, segments=3)
    carts, counter = Carts(store, gate=gate), StepCounter()
    assert isinstance(carts.reserve(Cart("c1", lines)), CartReserved)
    let_die(gate, counter)
    assert carts.confirm("c1", home=HOME).state == "confirmed"
    assert counter.counted == 2 * 10 + 1  # before and after each statement, and before the commit


def test_a_pool_that_forgets_while_it_sells_and_is_audited_agrees_with_the_database(
    store: RedisStore, valkey: ValkeyServer, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "NOTICE_MS", 0)
    monkeypatch.setattr(forgetting, "READ_AGAIN", 0.0)
    pool = Pool(store, SKU)
    open_gated(pool, gate, stock=20, segments=4)
    ended = threading.Event()

    def forget_on() -> int:
        with RedisStore.from_url(valkey.url) as other:
            while not ended.is_set():
                relay(Pool(other, SKU), gate, trim_keep=0)
                with suppress(InvalidInput):  # nothing is trimmed yet
                    forget(Pool(other, SKU), gate, grace=0)
            return Pool(other, SKU).state().forgotten or 0

    with ThreadPoolExecutor(1) as threads:
        forgot = threads.submit(forget_on)
        try:
            for number in range(10):
                for order_id in (f"n-{number}", f"n-{number}", "n-0"):
                    sell(pool, gate, order_id)
                both = audit_both(pool, gate)
                assert (pool.audit().drift, both.differences) == ((), ())
        finally:
            ended.set()
        assert forgot.result() > 0
    check(pool, gate, confirmed=10, available=10)
