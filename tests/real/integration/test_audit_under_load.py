"""Audits and repairs beside sellers that reserve, grant, settle, restock, withdraw and resize without a pause."""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Final

import pytest

from segmented.models import Order, Reserved
from segmented.servers import ValkeyServer
from segmented.stock import Grant, Pool
from segmented.stores.redis import RedisStore

SKU: Final = "ticket"
SELLERS: Final = 4
CHANGES: Final = 1_000
AUDITS_MIN: Final = 5
CONFIRMED: Final = 0.2
WARM: Final = 20
SECONDS: Final = 120.0
_runs = count()


@pytest.fixture
def pool(store: RedisStore) -> Pool:
    """Enough for the whole test, and some of it scarce, with a limit per customer."""
    pool = Pool(store, SKU, ttl=600, hold=600)
    pool.open(stock=2_000, segments=7, limit_per_customer=400)
    return pool


class Seller:
    """Does anything that a pool can do, in an order that its seed decides."""

    def __init__(self, store: RedisStore, seed: int, *, trims: bool) -> None:
        self.pool, self.hasty = Pool(store, SKU, ttl=600, hold=600), Pool(store, SKU, ttl=0.001, hold=0.001)
        self.dice, self.name, self.done, self.mine = random.Random(seed), f"{next(_runs)}-{seed}", 0, list[str]()
        weights = {self.reserve: 30, self.reserve_briefly: 10, self.reserve_many: 10, self.grant: 10, self.settle: 30}
        rare = {self.expire: 3, self.restock: 2, self.withdraw: 2, self.resize: 1, self.trim: 1 if trims else 0}
        self.weights = weights | rare

    def sell(self, stop: threading.Event, warm: threading.Semaphore) -> None:
        """Go on until told to stop, and say when some was done."""
        actions, weights = list(self.weights), list(self.weights.values())
        while not stop.is_set():
            self.done += 1
            self.dice.choices(actions, weights)[0]()
            if self.done == WARM:
                warm.release()

    def order(self) -> Order:
        return Order(f"{self.name}-{self.done}", self.dice.randrange(1, 6), self.customer())

    def customer(self) -> str:
        return f"customer {self.dice.randrange(40)}"

    def reserve(self) -> None:
        order = self.order()
        if isinstance(self.pool.reserve(order), Reserved):
            self.mine.append(order.order_id)

    def reserve_briefly(self) -> None:
        self.hasty.reserve(self.order(), partial=True)

    def reserve_many(self) -> None:
        orders = [Order(f"{self.name}-{self.done}.{line}", 1, self.customer()) for line in range(8)]
        self.mine += [one.order_id for one in self.pool.reserve_many(orders) if isinstance(one, Reserved)]

    def grant(self) -> None:
        """Some are dropped: their leases and holds end by themselves."""
        grant = (self.hasty if self.done % 2 else self.pool).grant(self.order(), timeout=0, keep_refusal=True)
        if isinstance(grant, Grant) and self.done % 2 == 0:
            self.dice.choice([grant.confirm, grant.cancel])()

    def settle(self) -> None:
        if self.mine:
            end = self.pool.confirm if self.dice.random() < CONFIRMED else self.pool.cancel
            end(self.mine.pop(self.dice.randrange(len(self.mine))))

    def expire(self) -> None:
        self.pool.expire(limit=50)

    def restock(self) -> None:
        self.pool.restock(3, restock_id=f"{self.name}-{self.done}")

    def withdraw(self) -> None:
        self.pool.withdraw(2, withdraw_id=f"{self.name}-{self.done}")

    def resize(self) -> None:
        self.pool.resize(self.dice.randrange(1, 12))

    def trim(self) -> None:
        self.pool.trim_ledger(keep=400)


def sell(url: str, seed: int, stop: threading.Event, warm: threading.Semaphore, *, trims: bool) -> None:
    with RedisStore.from_url(url) as store:
        Seller(store, seed, trims=trims).sell(stop, warm)


@contextmanager
def sellers(url: str, *, trims: bool = False) -> Iterator[None]:
    """Sell beside the body, which begins once each seller has done some of its work."""
    stop, warm = threading.Event(), threading.Semaphore(0)
    with ThreadPoolExecutor(SELLERS) as threads:
        selling = [threads.submit(sell, url, number, stop, warm, trims=trims) for number in range(SELLERS)]
        try:
            assert all(warm.acquire(timeout=SECONDS) for _ in range(SELLERS))
            yield
            assert not any(one.done() for one in selling)
        finally:
            stop.set()
        for one in selling:
            one.result(timeout=SECONDS)


@pytest.mark.parametrize("trims", [False, True], ids=["whole ledger", "trimmed ledger"])
def test_no_audit_of_a_sound_pool_gives_a_false_alarm(pool: Pool, valkey: ValkeyServer, *, trims: bool) -> None:
    sequences = [0]
    with sellers(valkey.url, trims=trims):
        while sequences[-1] < CHANGES or len(set(sequences)) <= AUDITS_MIN:
            report = pool.audit()
            assert report.drift == ()
            assert report.is_clean
            sequences.append(report.state.sequence)
    assert pool.audit().is_clean
    assert (pool.audit().first_sequence > 1) == trims
