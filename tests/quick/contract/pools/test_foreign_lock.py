"""A segment's lock is a plain string: whoever holds it by `SET NX`, with any other lock client, keeps us out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented import MemoryStore, Pool
from segmented.clock import ManualClock
from segmented.keys import shard_keys
from segmented.models import Busy
from segmented.stock import Grant

if TYPE_CHECKING:
    from tests.support.contract.pools.shop import Shop


def hold(shop: Shop, segment: int, *, px: int | None = None) -> None:
    assert shop.side.raw().set(f"{shop.keys.lock}:{segment}", "another client", nx=True, px=px)


def release(shop: Shop, segment: int) -> None:
    assert shop.side.raw().delete(f"{shop.keys.lock}:{segment}") == 1


def test_a_segment_that_another_client_holds_is_passed_over(redis_shop: Shop) -> None:
    """Its units are sold all the same."""
    redis_shop.open(6, 3)
    hold(redis_shop, 0)
    assert [redis_shop.granted(order_id).segment for order_id in "ab"] == [1, 2]
    assert isinstance(redis_shop.grant("c"), Busy)
    redis_shop.confirm("b")
    assert redis_shop.granted("d", 4).parts == ((2, 1), (0, 2), (1, 1))


def test_a_lock_that_never_lapses_is_looked_at_again_in_a_second(redis_shop: Shop) -> None:
    redis_shop.open(6, 1)
    hold(redis_shop, 0)
    answer = redis_shop.grant("a")
    assert isinstance(answer, Busy)
    assert answer.free_in_ms == 1_000


def test_a_segment_is_found_again_the_moment_the_other_client_has_gone(redis_shop: Shop) -> None:
    redis_shop.open(6, 2)
    hold(redis_shop, 0, px=600_000)
    hold(redis_shop, 1)
    assert isinstance(redis_shop.grant("a"), Busy)
    release(redis_shop, 1)
    assert redis_shop.granted("a").segment == 1
    release(redis_shop, 0)
    assert redis_shop.granted("b").segment == 0


def test_deciding_an_order_never_frees_another_clients_lock(redis_shop: Shop) -> None:
    redis_shop.open(6, 1)
    redis_shop.granted("a")
    release(redis_shop, 0)
    hold(redis_shop, 0)
    assert redis_shop.confirm("a").state == "confirmed"
    assert redis_shop.side.raw().get(f"{redis_shop.keys.lock}:0") == "another client"


def test_a_lock_whose_holder_is_named_like_an_orders_is_not_that_orders_lease(redis_shop: Shop) -> None:
    redis_shop.open(6, 2)
    redis_shop.granted("a", holder_id="h")
    hold(redis_shop, 1)
    release(redis_shop, 0)
    redis_shop.side.raw().set(f"{redis_shop.keys.lock}:0", "somebody else", px=600_000)
    answer = redis_shop.grant("a", holder_id="h")
    assert isinstance(answer, Busy)
    assert answer.is_in_hand is False
    release(redis_shop, 0)
    release(redis_shop, 1)


def test_a_deleted_lock_among_many_segments_is_found_after_a_fifth_of_a_second() -> None:
    """A refused attempt does not read the locks of 129 segments each time: it did so a moment ago."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    pool = Pool(store, "ticket", ttl=600, hold=600)
    pool.open(stock=1_000, segments=129)
    for index in range(129):
        assert isinstance(pool.grant(f"full{index}", timeout=0), Grant)
    assert isinstance(pool.grant("a", timeout=0), Busy)
    store.model.ask("DEL", f"{shard_keys('ticket').lock}:77")
    assert isinstance(pool.grant("a", timeout=0), Busy)
    clock.advance(0.2)
    found = pool.grant("a", timeout=0)
    assert isinstance(found, Grant)
    assert found.segment == 77
