"""The pool under test, audited when the test ends; and time for each attempt, however busy the machine is."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest
import redis

from segmented.clock import SystemClock
from segmented.protocol.lock.operations import LINE_TTL_MS, NEWCOMERS_MAX, PASSED_MS, WAITERS_MAX
from segmented.protocol.wire import load_script
from tests.contract.parking import ScriptCount
from tests.contract.pools.shop import Shop
from tests.fixtures.patience import ANSWER_SECONDS, BOUNDS
from tests.fixtures.stores import REDIS, Side, make_side
from tests.support.paths import ROOT
from tests.support.proxy import RedisProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.servers import ValkeyServer
    from tests.contract.parking import CountScripts
    from tests.fixtures.stores import Flavour

SCRIPTS = sorted(
    path.stem
    for path in (ROOT / "segmented" / "protocol").glob("*/*.lua")
    if path.parent.name != "shared" and path.stem != "kind"
)


SILENCE: Final = {
    "PING_SECONDS": ("stores.redis.listener", "stores.redis.async_listener"),
    "PATIENCE": ("stores.quorum.lane", "stores.quorum.asynchronous"),
}
"""Bound of a server's silence -> the modules of `segmented` that read it."""


@pytest.fixture(autouse=True)
def patient_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a request end by its answer, and not because the machine is slow: a lock that is held is then found held.

    Also, a waiter does not try again by itself within the test, so that one that gets its turn was woken. A module that
    tests the bounds themselves has a fixture of this name in its place.
    """
    for name, modules in (BOUNDS | SILENCE).items():
        for module in modules:
            monkeypatch.setattr(f"segmented.{module}.{name}", ANSWER_SECONDS)
    monkeypatch.setattr("segmented.plans.waiting.LOOK_SECONDS", 10 * ANSWER_SECONDS)


@pytest.fixture
def left_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that is left to the first process of the line is left to it for as long as the test lasts."""
    let_bounds_be(PASSED_MS, 60_000, monkeypatch)


@pytest.fixture
def untimed_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns are counted, and no time ends them."""
    let_bounds_be(60_000, 60_000, monkeypatch)


def let_bounds_be(passed_ms: int, left_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = f"{NEWCOMERS_MAX} {WAITERS_MAX} {passed_ms} {left_ms} {LINE_TTL_MS}"
    monkeypatch.setattr("segmented.protocol.lock.wire.LINE", bounds)
    monkeypatch.setattr("segmented.protocol.lock.line_model.PASSED_MS", passed_ms)
    monkeypatch.setattr("segmented.protocol.lock.line_model.LEFT_MS", left_ms)


@pytest.fixture
def count_scripts() -> Iterator[CountScripts]:
    """`ScriptCount`, which ends with the test: `scripts = count_scripts(server, name)`; `scripts()` is the count."""
    with ExitStack() as counts:
        yield lambda server, name: counts.enter_context(ScriptCount(server, name))


@pytest.fixture
def shop(side: Side) -> Iterator[Shop]:
    """A pool on each store and colour in turn; not yet open."""
    made = Shop(side, side.name())
    yield made
    made.check_books()


@pytest.fixture
def redis_shop(redis_side: Side) -> Iterator[Shop]:
    """A pool on Redis; not yet open."""
    made = Shop(redis_side, redis_side.name())
    yield made
    made.check_books()


@pytest.fixture
def plain_redis_shop(plain_redis_side: Side) -> Iterator[Shop]:
    """A pool on Redis over one wire, for what does not depend on the wire; not yet open."""
    made = Shop(plain_redis_side, plain_redis_side.name())
    yield made
    made.check_books()


@pytest.fixture
def private_valkey_url(private_valkey: ValkeyServer) -> str:
    """A server that no other test uses."""
    return private_valkey.url


@pytest.fixture
def proxy(valkey_url: str) -> Iterator[RedisProxy]:
    """A proxy before the session's server, whose cache has all scripts, so that the first request is the one meant."""
    with redis.Redis.from_url(valkey_url) as server:
        for name in SCRIPTS:
            server.script_load(load_script(name).text)
    with RedisProxy(valkey_url) as proxy:
        yield proxy


@pytest.fixture(params=[REDIS[0], REDIS[4]], ids=str)
def far_side(request: pytest.FixtureRequest, proxy: RedisProxy, valkey_url: str) -> Iterator[Side]:
    """A store behind the proxy; its `raw` client is not."""
    flavour: Flavour = request.param
    made = make_side(flavour, SystemClock(), proxy.url)
    made.raw().close()
    made.server = redis.Redis.from_url(valkey_url, decode_responses=True)
    yield made
    proxy.let_go()
    made.close()
