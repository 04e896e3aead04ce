"""A server that forgets its scripts, has no memory left, or holds something else under our keys."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import PoolMissing, PoolVanished, StoreRefused, WrongKind
from segmented.keys import cart_keys, lock_keys
from segmented.models import Acquired, Busy, Cart, Lost, Opened, Released, Renewed, Settled
from segmented.protocol.wire import text
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.support.contract.parking import ScriptCount
from tests.support.contract.pools.shop import SHORT_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.stores import Side
    from tests.support.contract.pools.shop import Shop

LOST_SOME = r"lost some of its keys; opening it again could sell its units twice$"


@pytest.fixture
def full_memory(redis_side: Side) -> Iterator[Callable[[], object]]:
    """Leave no memory for anything that would need more; there is some again when the test ends."""
    server = redis_side.raw()
    yield lambda: server.config_set("maxmemory", 1)
    server.config_set("maxmemory", 0)


# --- the script cache ---


def test_scripts_flushed_before_every_step_change_no_answer(redis_shop: Shop) -> None:
    server = redis_shop.side.raw()
    answers: list[object] = []
    steps: list[Callable[[], object]] = [
        lambda: redis_shop.open(8, 2),
        lambda: redis_shop.reserve("r"),
        lambda: redis_shop.grant("a", 3),
        lambda: redis_shop.grant("a", 3),
        lambda: redis_shop.renew("a"),
        lambda: redis_shop.confirm("a"),
        lambda: redis_shop.cancel("r"),
        lambda: redis_shop.expire("r"),
        redis_shop.due,
        redis_shop.ledger,
    ]
    for step in steps:
        server.script_flush()
        answers.append(step())
    assert redis_shop.totals() == (5, 0, 3)
    assert [type(answer).__name__ for answer in answers[:7]] == [
        "Opened",
        "Reserved",
        "Granted",
        "Granted",
        "Renewed",
        "Settled",
        "Settled",
    ]


def test_a_lock_survives_a_flush_of_scripts_between_acquire_and_release(redis_side: Side) -> None:
    name, server = redis_side.name("lock"), redis_side.raw()
    for step, kind in (
        (op.AcquireLock(name, "h", 60_000), Acquired),
        (op.RenewLock(name, "h", 60_000), Renewed),
        (op.ReleaseLock(name, "h"), Released),
    ):
        server.script_flush()
        assert isinstance(redis_side.execute(step), kind)


def test_after_a_flush_the_script_is_sent_once_and_then_known_again(redis_shop: Shop) -> None:
    redis_shop.open(8, 2)
    redis_shop.side.raw().script_flush()
    redis_shop.state()
    server, sku = redis_shop.side.raw(), redis_shop.sku
    with ScriptCount(server, sku, ["evalsha"]) as known, ScriptCount(server, sku, ["eval"]) as sent_whole:
        redis_shop.state()
        assert (known(), sent_whole()) == (1, 0)


def test_scripts_flushed_again_and_again_while_sixty_orders_are_sold_change_no_answer(redis_shop: Shop) -> None:
    redis_shop.open(60, 4)
    pool, sold_out = redis_shop.side.pool(redis_shop.sku), threading.Event()

    def flush() -> int:
        times = 0
        while not sold_out.is_set():
            redis_shop.side.raw().script_flush()
            times += 1
        return times

    def sell(index: int) -> None:
        with pool.grant(f"o{index}", timeout=60):
            pass

    flushing = redis_shop.side.start(flush)
    for selling in [redis_shop.side.start(partial(sell, index)) for index in range(60)]:
        selling.result(60)
    sold_out.set()
    assert flushing.result(60) > 0
    assert redis_shop.totals() == (0, 0, 60)


# --- no memory left ---


@pytest.mark.parametrize("way", ["grant", "reserve"])
def test_without_memory_an_order_is_refused_whole(
    redis_shop: Shop, full_memory: Callable[[], object], way: str
) -> None:
    redis_shop.open(8, 2)
    full_memory()
    with pytest.raises(StoreRefused, match=r"refused the operation: .*maxmemory"):
        (redis_shop.grant if way == "grant" else redis_shop.reserve)("a", 3)
    assert redis_shop.totals() == (8, 0, 0)
    assert redis_shop.record("a") is None
    assert redis_shop.story() == [("opened", None)]
    assert redis_shop.side.raw().exists(f"{redis_shop.keys.lock}:0") == 0


def test_without_memory_what_was_taken_is_renewed_confirmed_cancelled_and_expired(
    redis_shop: Shop, full_memory: Callable[[], object]
) -> None:
    redis_shop.open(8, 4)
    for order_id in "abc":
        redis_shop.granted(order_id, ttl_ms=SHORT_MS if order_id == "c" else 60_000, hold_ms=SHORT_MS)
    redis_shop.let_short_holds_lapse()
    full_memory()
    assert redis_shop.renew("a") == Renewed(600_000)
    assert redis_shop.confirm("a").state == "confirmed"
    cancelled = redis_shop.cancel("b", "holder of b")
    assert isinstance(cancelled, Settled)
    assert cancelled.state == "cancelled"
    expired = redis_shop.expire("c")
    assert isinstance(expired, Settled)
    assert expired.state == "expired"
    assert redis_shop.totals() == (7, 0, 1)


def test_without_memory_a_lock_is_refused_but_renewed_and_released(
    redis_side: Side, full_memory: Callable[[], object]
) -> None:
    name = redis_side.name("lock")
    redis_side.execute(op.AcquireLock(name, "h", 60_000))
    full_memory()
    assert redis_side.execute(op.RenewLock(name, "h", 60_000)) == Renewed(60_000)
    assert redis_side.execute(op.ReleaseLock(name, "h")) == Released()
    with pytest.raises(StoreRefused):
        redis_side.execute(op.AcquireLock(name, "h", 60_000))
    assert redis_side.execute(op.RenewLock(name, "h", 60_000)) == Lost()


def test_without_memory_a_grant_through_the_pool_is_refused_not_unknown(
    redis_shop: Shop, full_memory: Callable[[], object]
) -> None:
    redis_shop.open(8, 2)
    pool = redis_shop.side.pool(redis_shop.sku)
    full_memory()
    for timeout in (0, 0.2):
        with pytest.raises(StoreRefused, match="maxmemory"):
            pool.grant("a", timeout=timeout)


# --- something else under our keys: the same on every wire, so shown on one ---

WRITES = ("reserve", "grant", "second grant", "kept refusal", "renew", "confirm", "cancel", "expire", "expire inside")
KINDS = ("meta", "stock", "free", "orders", "holds", "ledger")


def prepared(shop: Shop) -> dict[str, Callable[[], object]]:
    """Return one call for each write that is now possible."""
    shop.open(20, 8)
    shop.granted("granted", 2)
    shop.granted("lapsed", 2)
    shop.let_lease_lapse("lapsed")
    shop.reserved("due", 2, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    return {
        "reserve": lambda: shop.reserve("new", 5),
        "grant": lambda: shop.grant("new", 5),
        "second grant": lambda: shop.grant("lapsed", 2, holder_id="second"),
        "kept refusal": lambda: shop.grant("new", 500, keep_refusal=True),
        "renew": lambda: shop.renew("granted"),
        "confirm": lambda: shop.confirm("granted"),
        "cancel": lambda: shop.cancel("granted"),
        "expire": lambda: shop.expire("due"),
        "expire inside": lambda: shop.reserve("new", 16),
    }


def everything(shop: Shop) -> dict[str, object]:
    """Return every key of the pool with all it holds."""
    server = shop.side.raw()
    keys = sorted(text(key) for key in server.keys(f"{shop.keys.lock.removesuffix('lock')}*"))
    return {key: server.dump(key) for key in keys}


@contextmanager
def displaced(shop: Shop, key: str, *, by_nothing: bool = False) -> Iterator[None]:
    """Put something else where a key was; the key is back afterwards."""
    server = shop.side.raw()
    server.rename(key, f"{key}:aside")
    if not by_nothing:
        server.set(key, "something else")
    try:
        yield
    finally:
        server.rename(f"{key}:aside", key)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("write", WRITES)
def test_a_key_of_the_wrong_type_refuses_the_write_and_leaves_nothing_half_done(
    plain_redis_shop: Shop, write: str, kind: str
) -> None:
    shop = plain_redis_shop
    call = prepared(shop)[write]
    with displaced(shop, getattr(shop.keys, kind)):
        before = everything(shop)
        with pytest.raises(WrongKind, match="holds another type"):
            call()
        assert everything(shop) == before


@pytest.mark.parametrize("write", ["reserve", "grant", "confirm", "cancel", "expire"])
def test_a_key_of_the_wrong_type_in_place_of_the_customers_refuses_the_write_whole(
    plain_redis_shop: Shop, write: str
) -> None:
    shop = plain_redis_shop
    shop.open(20, 8, limit_per_customer=4)
    shop.reserve("a", 2, customer_id="c", hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    calls: dict[str, Callable[[], object]] = {
        "reserve": lambda: shop.reserve("b", 1, customer_id="c"),
        "grant": lambda: shop.grant("b", 1, customer_id="c"),
        "confirm": lambda: shop.confirm("a"),
        "cancel": lambda: shop.cancel("a"),
        "expire": lambda: shop.expire("a"),
    }
    with displaced(shop, shop.keys.customers):
        before = everything(shop)
        with pytest.raises(WrongKind, match="holds another type"):
            calls[write]()
        assert everything(shop) == before


@pytest.mark.parametrize("write", ["confirm", "cancel"])
def test_a_segments_lock_of_the_wrong_type_does_not_keep_an_order_from_being_decided(
    plain_redis_shop: Shop, write: str
) -> None:
    shop = plain_redis_shop
    call = prepared(shop)[write]
    key = f"{shop.keys.lock}:0"
    shop.side.raw().delete(key)
    shop.side.raw().rpush(key, "a list")
    call()
    assert shop.side.raw().lrange(key, 0, -1) == ["a list"]
    shop.check_books()
    shop.side.raw().delete(key)


def test_a_segments_lock_of_the_wrong_type_counts_as_held(plain_redis_shop: Shop) -> None:
    shop = plain_redis_shop
    shop.open(8, 2)
    shop.side.raw().rpush(f"{shop.keys.lock}:0", "a list")
    assert shop.granted("a").segment == 1
    assert isinstance(shop.grant("b"), Busy)


def test_a_pool_that_lost_its_totals_is_not_opened_over_its_remains(plain_redis_shop: Shop) -> None:
    shop = plain_redis_shop
    shop.open(8, 2)
    shop.granted("a")
    with displaced(shop, shop.keys.meta, by_nothing=True):
        with RedisStore(shop.side.raw()) as other:
            with pytest.raises(StoreRefused, match=LOST_SOME):
                Pool(other, shop.sku).open(stock=8, segments=2)
            with pytest.raises(PoolMissing):
                Pool(other, shop.sku).confirm("a")
        for call in (lambda: shop.open(8, 2), lambda: shop.confirm("a")):  # this process has seen it open
            with pytest.raises(PoolVanished):
                call()
    assert shop.totals() == (7, 1, 0)


@pytest.mark.parametrize("left", ["carts", "unfinished"])
def test_a_pool_of_which_only_carts_are_left_is_not_opened_over_them(plain_redis_shop: Shop, left: str) -> None:
    shop = plain_redis_shop
    server, keys = shop.side.raw(), cart_keys(shop.sku)
    shop.open(8, 2)
    shop.side.execute(op.OpenCart(Cart("c1", [(shop.sku, 1)]), 60_000))
    found = {text(key) for key in server.keys(f"{keys.meta.removesuffix(':meta')}:*")}
    assert found >= {keys.carts, keys.unfinished}
    server.delete(*(found - {getattr(keys, left)}))
    with RedisStore(server) as other:
        pool = Pool(other, shop.sku)
        with pytest.raises(StoreRefused, match=LOST_SOME):
            pool.open(stock=8, segments=2)
        with pytest.raises(PoolVanished):
            shop.open(8, 2)  # this process has seen it open
        assert server.delete(getattr(keys, left)) == 1
        assert isinstance(pool.open(stock=8, segments=2), Opened)


@pytest.mark.parametrize("kind", ["lock", "fence"])
def test_a_named_locks_key_of_the_wrong_type_refuses_the_acquire(plain_redis_side: Side, kind: str) -> None:
    name = plain_redis_side.name("lock")
    key = getattr(lock_keys(name), kind)
    plain_redis_side.raw().rpush(key, "a list")
    with pytest.raises(WrongKind, match="holds another type"):
        plain_redis_side.execute(op.AcquireLock(name, "h", 60_000))
    assert plain_redis_side.raw().lrange(key, 0, -1) == ["a list"]
    assert plain_redis_side.raw().exists(*lock_keys(name).listed()) == 1
