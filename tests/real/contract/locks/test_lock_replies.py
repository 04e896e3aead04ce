"""Lost replies and lost lines, through a proxy before the real server. The ids are the rows of the catalogue."""

from collections.abc import Iterator

import pytest
import redis

from segmented.clock import Clock, SystemClock
from segmented.errors import StoreUnavailable
from segmented.keys import lock_keys
from segmented.models import Granted, Refusal
from segmented.plans.drivers import AsyncStore
from segmented.stores.redis import AsyncRedisStore, RedisStore
from tests.fixtures.stores import REDIS, AsyncSide, Side, SyncSide
from tests.support.contract.bodies import fail_after
from tests.support.contract.pools.shop import Shop
from tests.support.flavour import Flavour
from tests.support.proxy import RedisProxy

SYNC, ASYNC = REDIS[0], REDIS[-1]


@pytest.fixture(params=[SYNC, ASYNC], ids=str)
def far_side(request: pytest.FixtureRequest, proxy: RedisProxy, valkey_url: str) -> Iterator[Side]:
    """A store made by `from_url`, behind the proxy; its `raw` client is not."""
    flavour: Flavour = request.param

    async def make_store(clock: Clock) -> AsyncStore:
        return await AsyncRedisStore.from_url(proxy.url, clock=clock)

    clock = SystemClock()
    if flavour.colour == "sync":
        side: Side = SyncSide(flavour, RedisStore.from_url(proxy.url, clock=clock), clock)
    else:
        side = AsyncSide(flavour, clock, make_store)
    side.server = redis.Redis.from_url(valkey_url, decode_responses=True)
    yield side
    proxy.let_go()
    side.close()


def test_e1_an_acquire_that_never_got_a_reply_takes_the_lock_back(far_side: Side, proxy: RedisProxy) -> None:
    name = far_side.name("lock")
    proxy.swallow_replies(2, to=b"EVALSHA")
    with pytest.raises(StoreUnavailable):
        far_side.lock(name, ttl=60).acquire(timeout=0)
    assert proxy.swallowed == 2
    assert far_side.raw().exists(lock_keys(name).lock) == 0


def test_a8_the_bodys_own_error_surfaces_when_the_server_is_gone(far_side: Side, proxy: RedisProxy) -> None:
    lease = far_side.lock(far_side.name("lock"), ttl=60).acquire(timeout=0)
    with pytest.raises(ZeroDivisionError) as caught, lease:
        fail_after(proxy.vanish)
    assert len(caught.value.__notes__) == 1
    assert "did not answer" in caught.value.__notes__[0]


def test_a_grant_whose_reply_was_lost_is_granted_once(far_side: Side, proxy: RedisProxy) -> None:
    shop = Shop(far_side, far_side.name())
    shop.open(8, 2)
    proxy.swallow_replies(1, to=b"EVALSHA")
    granted = shop.grant("a", 3)
    assert isinstance(granted, Granted)
    assert not granted.replay
    proxy.swallow_replies(1, to=b"EVALSHA")
    assert shop.confirm("a").state == "confirmed"
    assert shop.story() == [("opened", None), ("reserved", "a"), ("confirmed", "a")]
    shop.check_books()


def test_a_grant_that_never_got_a_reply_keeps_its_units_for_the_repeat(far_side: Side, proxy: RedisProxy) -> None:
    shop = Shop(far_side, far_side.name())
    shop.open(8, 2)
    pool = far_side.pool(shop.sku, ttl=1.0)
    known = pool.grant("known", quantity=1, timeout=120)  # the pool is registered with workers before its first hold
    assert not isinstance(known, Refusal)
    known.cancel()
    proxy.swallow_replies(2, to=b"EVALSHA")
    with pytest.raises(StoreUnavailable):
        pool.grant("a", quantity=3, timeout=0)
    assert shop.totals() == (5, 3, 0)
    repeat = pool.grant("a", quantity=3, timeout=120)
    assert not isinstance(repeat, Refusal)
    assert repeat.confirm().state == "confirmed"
    assert shop.story()[-3:] == [("reserved", "a"), ("granted", "a"), ("confirmed", "a")]
    shop.check_books()
