"""Single flights whose replies get lost, through a proxy before the real server."""

import pytest

from segmented.errors import StoreUnavailable
from segmented.keys import cache_keys
from segmented.protocol.wire import load_script
from tests.fixtures.stores import Side
from tests.support.contract.caches.flights import Flight, Loader
from tests.support.proxy import Proxy

LOOK = load_script("read_or_acquire").sha.encode()


def kept_and_locked(side: Side, key: str) -> tuple[bool, bool]:
    keys = cache_keys(key)
    return bool(side.raw().exists(keys.cached)), bool(side.raw().exists(keys.locking.lock))


def test_a_question_whose_reply_was_lost_is_one_loader_call(far_side: Side, proxy: Proxy) -> None:
    flight, key, loader = Flight(far_side), far_side.name(), Loader()
    proxy.swallow_replies(1, to=LOOK)
    assert (flight.get(key, loader), proxy.swallowed, loader.calls) == ("loaded", 1, 1)
    assert kept_and_locked(far_side, key) == (True, False)


def test_a_question_that_never_got_a_reply_raises_and_leaves_no_lock(far_side: Side, proxy: Proxy) -> None:
    flight, key, loader = Flight(far_side), far_side.name(), Loader()
    proxy.swallow_replies(100, to=LOOK)
    with pytest.raises(StoreUnavailable):
        flight.get(key, loader)
    proxy.swallow_replies(0, to=LOOK)
    assert loader.calls == 0
    assert kept_and_locked(far_side, key) == (False, False)
