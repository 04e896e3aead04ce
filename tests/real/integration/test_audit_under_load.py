"""Audits and repairs beside sellers that reserve, grant, settle, restock, withdraw and resize without a pause."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Final

import pytest
import redis

from segmented.errors import SegmentedError
from segmented.keys import shard_keys
from segmented.models import Order, Reserved
from segmented.stock import Grant, Pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.servers import ValkeyServer
    from segmented.stock import AuditReport

SKU: Final = "ticket"
KEYS: Final = shard_keys(SKU)
SELLERS: Final = 4
PLANTED: Final = 20
CHANGES: Final = 3_000
AUDITS_MIN: Final = 10
CONFIRMED: Final = 0.2
WARM: Final = 20
SECONDS: Final = 120.0
FAR_MS: Final = 10**14
_runs = count()


@pytest.fixture
def pool(store: RedisStore) -> Pool:
    """Enough for the whole test, and some of it scarce, with a limit per customer."""
    pool = Pool(store, SKU, ttl=600, hold=600)
    pool.open(stock=2_000, segments=7, limit_per_customer=400)
    return pool


@pytest.fixture
def server(valkey: ValkeyServer) -> Iterator[redis.Redis]:
    """Another client of the same server, to do damage with."""
    with redis.Redis.from_url(valkey.url, decode_responses=True) as server:
        yield server


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


def found(report: AuditReport) -> set[tuple[str, str | None]]:
    return {(drift.kind, drift.order_id) for drift in report.drift}


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


def lose(server: redis.Redis, order_ids: list[str]) -> None:
    """Forget records, of half of the orders with their holds."""
    server.hdel(KEYS.orders, *order_ids)
    server.zrem(KEYS.holds, *order_ids[::2])


def leak(server: redis.Redis, order_ids: list[str]) -> set[str]:
    """Forget the holds of half of the orders, and make up holds for nobody; returns the orders of both."""
    half = len(order_ids) // 2
    server.zrem(KEYS.holds, *order_ids[:half])
    made_up = {f"nobody's {index}": FAR_MS for index in range(len(order_ids) - half)}
    server.zadd(KEYS.holds, made_up)
    return {*order_ids[:half], *made_up}


def write(server: redis.Redis, order_ids: list[str]) -> set[str]:
    """Change half of the records, and make up others; returns the orders of both."""
    half = len(order_ids) // 2
    for order_id in order_ids[:half]:
        state, _, rest = str(server.hget(KEYS.orders, order_id)).split("\t", 2)
        server.hset(KEYS.orders, order_id, f"{state}\t9\t{rest}")
    made_up = [f"from nowhere {index}" for index in range(len(order_ids) - half)]
    for order_id in made_up:
        server.hset(KEYS.orders, order_id, "c\t1\t0\t1")
    return {*order_ids[:half], *made_up}


def test_eighty_planted_drifts_are_named_and_mended_while_the_pool_sells(
    pool: Pool, valkey: ValkeyServer, server: redis.Redis
) -> None:
    names = {kind: [f"{kind} {index}" for index in range(PLANTED)] for kind in ("lost", "leaked", "written", "twice")}
    for kind, order_ids in names.items():
        orders = [Order(order_id, 1, f"victim {kind}") for order_id in order_ids]
        assert all(isinstance(one, Reserved) for one in pool.reserve_many(orders))
    with sellers(valkey.url):
        lose(server, names["lost"])
        expected = {("lost", order_id) for order_id in names["lost"]}
        expected |= {("leaked hold", order_id) for order_id in leak(server, names["leaked"])}
        expected |= {("foreign write", order_id) for order_id in write(server, names["written"])}
        server.hdel(KEYS.orders, *names["twice"])
        again = [Order(order_id, 1, "victim twice") for order_id in names["twice"]]
        while not all(isinstance(one, Reserved) for one in pool.reserve_many(again)):
            pool.restock(PLANTED, restock_id=f"for those that come twice {next(_runs)}")
        duplicates = {("duplicate", order_id) for order_id in names["twice"]}
        report = pool.audit()
        assert found(report) == expected | duplicates
        assert report.by_kind == dict.fromkeys(("lost", "leaked hold", "foreign write", "duplicate"), PLANTED)
        server.hincrby(KEYS.meta, "confirmed", 7)
        server.hincrby(KEYS.customers, "victim lost", -2)
        report = pool.audit()
        assert (report.drift_count, report.by_kind["foreign write"]) == (4 * PLANTED + 3, PLANTED + 3)
        repaired = pool.repair(report, yes=True)
        assert repaired.done_count == 3 * PLANTED + 3
        assert {(one.kind, one.order_id) for one in repaired.repairs if not one.is_done} == duplicates
        assert found(pool.audit()) == duplicates
        assert pool.repair(report, yes=True).done_count == 0
    assert found(pool.audit()) == duplicates
    state = pool.state()
    assert state.stocked == state.available + state.reserved + state.confirmed
    for order_id in names["lost"]:
        pool.cancel(order_id)
    with pytest.raises(SegmentedError):
        pool.cancel("from nowhere 0")
    assert found(pool.audit()) == duplicates
