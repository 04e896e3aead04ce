"""What comes back to a closed store is closed: it leaves no connection behind, whatever was under way."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Final

import pytest
import redis
import sqlalchemy
from sqlalchemy.pool import NullPool

from bench.clusters import LOOPBACK
from segmented.errors import ReplicasMissing
from segmented.keys import lock_keys
from segmented.locks import AsyncLock, Lock, SqlDeadLetters
from segmented.orders import Gate
from segmented.orders.engine import parse
from segmented.servers import ValkeyServer
from tests.fixtures.stores import Side
from tests.fixtures.stores_deployed import COLOURS, deployed_side
from tests.fixtures.stores_quorum import open_quorum
from tests.support.contract.parking import wait_until
from tests.support.proxy import RedisProxy
from tests.support.servers.nodes import Node

LONG: Final = 600.0
SOON: Final = 30.0
TOO_MANY: Final = 100
"""Replicas that no deployment has, so that the server waits for them until it is told to stop."""
SERVERS: Final = {"single": "single_server", "sentinels": "sentinels", "cluster": "cluster"}


@dataclass(frozen=True, slots=True)
class Deployed:
    """A store, and the servers that it may be connected to: those with keys, and Sentinels."""

    side: Side
    nodes: Sequence[Node]

    @property
    def store(self) -> Any:  # noqa: ANN401  # a store of either colour, with the face of the one for threads
        return faced(self.side, self.side.store)

    def lock(self, name: str, *, replicas: int = 0) -> Lock:
        return self.side.made(
            lambda store: Lock(store, name, ttl=LONG, replicas=replicas, replicas_timeout=LONG),
            lambda store: AsyncLock(store, name, ttl=LONG, replicas=replicas, replicas_timeout=LONG),
        )

    def waiting(self) -> list[tuple[Node, str]]:
        """Return the requests whose replies the servers hold back."""
        return [(node, one["id"]) for node in self.nodes for one in _clients(node) if one["flags"] == "b"]

    def connections(self) -> int:
        """Count the driver's connections over TCP; the test itself looks by way of a Unix socket."""
        clients = [one for node in self.nodes for one in _clients(node)]
        return sum(one["lib-name"] == "redis-py" and one["addr"].startswith(LOOPBACK) for one in clients)


def faced(side: Side, target: object) -> Any:  # noqa: ANN401  # of either colour
    """Return an object of the side's colour with the face of its twin for threads."""
    return side.made(lambda _: target, lambda _: target)


def _clients(node: Node) -> list[dict[str, str]]:
    with node.client() as client:
        found: list[dict[str, str]] = client.client_list()
        return found


@pytest.fixture(params=[(server, colour) for server in SERVERS for colour in COLOURS], ids="-".join)
def deployed(request: pytest.FixtureRequest) -> Iterator[Deployed]:
    server, colour = request.param
    deployment = request.getfixturevalue(SERVERS[server])
    made = Deployed(deployed_side(deployment.url, colour), getattr(deployment, "nodes", [deployment]))
    yield made
    made.side.close()


def test_a_connection_that_comes_back_to_a_closed_store_is_closed(deployed: Deployed) -> None:
    lock = deployed.lock("door", replicas=TOO_MANY)
    acquiring = deployed.side.start(lambda: lock.acquire(timeout=LONG))
    wait_until(lambda: len(deployed.waiting()) == 1)
    deployed.store.close()
    assert deployed.connections() == 1
    ((node, client_id),) = deployed.waiting()
    node.ask("CLIENT", "UNBLOCK", client_id)
    with pytest.raises(ReplicasMissing):
        acquiring.result(SOON)
    wait_until(lambda: deployed.connections() == 0, seconds=SOON)


def test_a_closed_store_that_is_used_again_leaves_no_connection(deployed: Deployed) -> None:
    deployed.store.close()
    for number in range(9):  # of a cluster, on each node
        deployed.lock(f"door-{number}").acquire(timeout=0).release()
    wait_until(lambda: deployed.connections() == 0, seconds=SOON)


def test_a_wait_on_a_closed_store_subscribes_to_nothing(deployed: Deployed) -> None:
    deployed.store.close()
    faced(deployed.side, deployed.side.store.wakeups).listen(lock_keys("door").freed, inf)
    wait_until(lambda: deployed.connections() == 0, seconds=SOON)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_vote_that_comes_back_to_closed_stores_leaves_no_connection(
    start_valkey: Callable[[], ValkeyServer], colour: str
) -> None:
    urls = [start_valkey().url for _ in range(3)]
    with RedisProxy(urls[0]) as proxy:
        quorum = open_quorum(colour, [proxy.url, *urls[1:]], behind=urls)
        proxy.hold_replies(b"EVAL")
        quorum.lock("door").acquire()
        assert proxy.holding.wait(SOON)
        for store in quorum.inner:
            faced(quorum.side, store).close()
        proxy.let_go()
        faced(quorum.side, quorum.side.store).close()
        wait_until(lambda: [_others(raw) for raw in quorum.raws] == [0, 0, 0], seconds=SOON)
        quorum.close()


def _others(server: redis.Redis) -> int:
    return len(server.client_list()) - 1


# --- databases ---


def sessions(url: str) -> int:
    """Count the connections to a database: the server's sessions, or the files of it that this process has open."""
    parsed = parse(url)
    if parsed.get_backend_name() == "sqlite":
        return sum(target == parsed.database for target in _open_files())
    with sqlalchemy.create_engine(parsed, poolclass=NullPool).connect() as connection:
        found: int = connection.exec_driver_sql(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).scalar_one()
        return found


def _open_files() -> Iterator[str]:
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # of the listing itself
            yield str(descriptor.readlink())


def test_a_connection_that_comes_back_to_a_closed_gate_is_closed(order_database: str) -> None:
    with Gate(order_database) as gate:
        gate.create()
        gate.open("mug", [1])
        with gate.transaction(order_id="o-1", sku="mug", segment=0, quantity=1, epoch=1):
            gate.close()
            assert sessions(order_database) == 1
        wait_until(lambda: sessions(order_database) == 0, seconds=SOON)
        assert gate.confirmed_units("mug") == 1
        wait_until(lambda: sessions(order_database) == 0, seconds=SOON)


def close_and_fail(gate: Gate) -> None:
    gate.close()
    raise ZeroDivisionError


def test_a_closed_gate_whose_transaction_fails_leaves_no_connection(order_database: str) -> None:
    with Gate(order_database) as gate:
        gate.create()
        gate.open("mug", [1])
        with (
            pytest.raises(ZeroDivisionError),
            gate.transaction(order_id="o-1", sku="mug", segment=0, quantity=1, epoch=1),
        ):
            close_and_fail(gate)
        wait_until(lambda: sessions(order_database) == 0, seconds=SOON)
        assert gate.confirmed_units("mug") == 0


def test_closed_dead_letters_that_are_read_leave_no_connection(order_database: str) -> None:
    letters = SqlDeadLetters(parse(order_database).render_as_string(hide_password=False))
    letters.close()
    assert letters.pending() == []
    wait_until(lambda: sessions(order_database) == 0, seconds=SOON)
