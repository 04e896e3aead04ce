"""Single flights whose replies get lost, through a proxy before the real server."""

import logging

import pytest

from segmented.errors import StoreUnavailable
from segmented.keys import cache_keys
from segmented.protocol.wire import load_script
from tests.fixtures.stores import Side
from tests.support.contract.caches.flights import Flight, Loader
from tests.support.proxy import Proxy

LOOK, WRITE = (load_script(name).sha.encode() for name in ("read_or_acquire", "write_cached"))


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


def test_a_value_whose_keeping_was_not_answered_is_given_and_the_lock_is_free(
    far_side: Side, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    flight, key, loader = Flight(far_side), far_side.name(), Loader()
    proxy.swallow_replies(100, to=WRITE)
    with caplog.at_level(logging.WARNING, logger="segmented.locks"):
        assert flight.get(key, loader) == "loaded"
    assert [record.message for record in caplog.records] == ["flight.not_kept"]
    assert kept_and_locked(far_side, key) == (True, False)  # the server had kept it before the reply was lost
