"""A server that forgets its scripts, has no memory left, or holds something else under our keys."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from segmented.errors import PoolMissing, PoolVanished, StoreRefused, WrongKind
from segmented.models import Renewed, Settled
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.fixtures.stores import Side
from tests.support.contract.pools.shop import SHORT_MS, Shop

LOST_SOME = r"lost some of its keys; opening it again could sell its units twice$"


@pytest.fixture
def full_memory(plain_redis_side: Side) -> Iterator[Callable[[], object]]:
    """Leave no memory for anything that would need more; there is some again when the test ends."""
    server = plain_redis_side.raw()
    yield lambda: server.config_set("maxmemory", 1)
    server.config_set("maxmemory", 0)


# --- the script cache ---


def test_scripts_flushed_before_every_step_change_no_answer(plain_redis_shop: Shop) -> None:
    server = plain_redis_shop.side.raw()
    answers: list[object] = []
    steps: list[Callable[[], object]] = [
        lambda: plain_redis_shop.open(8, 2),
        lambda: plain_redis_shop.reserve("r"),
        lambda: plain_redis_shop.grant("a", 3),
        lambda: plain_redis_shop.grant("a", 3),
        lambda: plain_redis_shop.renew("a"),
        lambda: plain_redis_shop.confirm("a"),
        lambda: plain_redis_shop.cancel("r"),
        lambda: plain_redis_shop.expire("r"),
        plain_redis_shop.due,
        plain_redis_shop.ledger,
    ]
    for step in steps:
        server.script_flush()
        answers.append(step())
    assert plain_redis_shop.totals() == (5, 0, 3)
    assert [type(answer).__name__ for answer in answers[:7]] == [
        "Opened",
        "Reserved",
        "Granted",
        "Granted",
        "Renewed",
        "Settled",
        "Settled",
    ]


# --- no memory left ---


def test_without_memory_what_was_taken_is_renewed_confirmed_cancelled_and_expired(
    plain_redis_shop: Shop, full_memory: Callable[[], object]
) -> None:
    plain_redis_shop.open(8, 4)
    for order_id in "abc":
        plain_redis_shop.granted(order_id, ttl_ms=SHORT_MS if order_id == "c" else 60_000, hold_ms=SHORT_MS)
    plain_redis_shop.let_short_holds_lapse()
    full_memory()
    assert plain_redis_shop.renew("a") == Renewed(600_000)
    assert plain_redis_shop.confirm("a").state == "confirmed"
    cancelled = plain_redis_shop.cancel("b", "holder of b")
    assert isinstance(cancelled, Settled)
    assert cancelled.state == "cancelled"
    expired = plain_redis_shop.expire("c")
    assert isinstance(expired, Settled)
    assert expired.state == "expired"
    assert plain_redis_shop.totals() == (7, 0, 1)


# --- something else under our keys: the same on every wire, so shown on one ---


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


@pytest.mark.parametrize("kind", ["meta", "stock", "free", "orders", "holds", "ledger"])
def test_a_key_of_the_wrong_type_is_named(plain_redis_shop: Shop, kind: str) -> None:
    shop = plain_redis_shop
    shop.open(20, 8)
    shop.reserved("held", 2)
    with displaced(shop, getattr(shop.keys, kind)), pytest.raises(WrongKind, match="holds another type"):
        shop.reserve("new", 5)


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
