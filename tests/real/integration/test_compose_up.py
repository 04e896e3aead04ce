"""All of docker-compose.yml at once, without containers: its commands, its order, its variables, its health checks."""

import json
import re
import stat
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from bench.clusters import LOOPBACK
from segmented.errors import SegmentedError
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.support.rings import require_module
from tests.support.servers.composing import COMPOSE, PAGE, SERVICES, STOCKS, ComposedServices, make_secrets
from tests.support.servers.nodes import eventually, free_ports

COMMANDS = re.findall(r"^\$ docker compose run --rm worker (.+)$", PAGE, re.MULTILINE)
SKU = COMMANDS[-1].split()[3]
ORDERS = 20
UNITS = 300
START_SECONDS = 120.0


@pytest.fixture
def services(tmp_path: Path, postgres_database: str) -> Iterator[ComposedServices]:
    """The stock as a cluster, the broker, and an order database: what workers wait for."""
    with ExitStack() as stack:
        services = ComposedServices.prepare(tmp_path, stack)
        services.start(*STOCKS, "broker")
        formed = services.run("cluster-init")
        assert formed.returncode == 0, formed.stdout + formed.stderr
        services.addresses[services.secret("worker", "database-url")] = postgres_database
        services.addresses["/beat/"] = f"{tmp_path}/"
        yield services


def seconds(service: str) -> float:
    """Return how long Compose would let a service end."""
    return float(re.fullmatch(r"(\d+)s", SERVICES[service]["stop_grace_period"])[1])  # type: ignore[index]  # or it fails


def is_up(services: ComposedServices, service: str, **changes: str) -> bool:
    return services.health(service, **changes) == 0


def sold(pool: Pool) -> int:
    try:
        return pool.state().confirmed
    except SegmentedError:
        return 0


def test_a_worker_and_beat_take_orders_and_end_when_they_are_told_to(services: ComposedServices) -> None:
    worker, beat = services.launch("worker"), services.launch("beat")
    assert len(COMMANDS) == 3
    for command in COMMANDS:
        done = services.run_instead("worker", command)
        assert done.returncode == 0, done.stdout + done.stderr
    with (
        RedisStore.from_url(services.secret("worker", "stock-url")) as store,
        Celery(broker=services.secret("worker", "broker-url")) as publisher,
    ):
        pool = Pool(store, SKU)
        publisher.conf.task_default_queue = "segmented"
        for number in range(ORDERS):
            publisher.send_task("segmented.take_order", (SKU, f"order-{number}", 2, None))
        eventually(lambda: sold(pool) == 2 * ORDERS, "all orders are sold", seconds=START_SECONDS)
        assert pool.is_gated()
        assert pool.audit().drift_count == 0
    assert is_up(services, "worker")
    assert is_up(services, "beat")
    assert (worker.poll(), beat.poll()) == (None, None)
    worker.terminate()
    beat.terminate()
    assert (worker.wait(seconds("worker")), beat.wait(seconds("beat"))) == (0, 0)


@pytest.mark.long
def test_locust_sells_a_pool_on_the_cluster_to_the_last_unit(services: ComposedServices) -> None:
    require_module("Locust", "locust")
    web, master = free_ports(2)
    services.addresses |= {
        f"{LOOPBACK}:8089": f"{LOOPBACK}:{web}",
        "'locust-master', 5557": f"'{LOOPBACK}', {master}",
        "locust-master": LOOPBACK,
    }
    assert not is_up(services, "locust-master")
    assert not is_up(services, "locust-worker")
    ports = {
        "LOCUST_WEB_PORT": str(web),
        "LOCUST_MASTER_BIND_PORT": str(master),
        "LOCUST_MASTER_NODE_PORT": str(master),
    }
    leader = services.launch("locust-master", **ports)
    eventually(lambda: is_up(services, "locust-master"), "Locust's page", seconds=START_SECONDS)
    assert is_up(services, "locust-worker")
    follower = services.launch("locust-worker", **ports)
    eventually(lambda: asked(web, "stats/requests")["worker_count"] == 1, "a worker", seconds=START_SECONDS)
    asked(web, "swarm", user_count="4", spawn_rate="4", sku="crowd", stock=str(UNITS), segments="4", shards="3")
    eventually(lambda: counted(web).get("SoldOut", 0) > 0, "it is sold out", seconds=START_SECONDS)
    asked(web, "stop", reason="enough")
    eventually(lambda: "audited, no drift" in services.said("locust-master"), "the audit", seconds=START_SECONDS)
    eventually(lambda: counted(web)["Sold"] >= UNITS, "the worker's last report", seconds=START_SECONDS)
    assert counted(web)["Sold"] == UNITS
    leader.terminate()
    assert leader.wait(seconds("locust-master")) == 0, services.said("locust-master")
    follower.terminate()
    follower.wait(seconds("locust-worker"))


def counted(port: int) -> dict[str, int]:
    """Return Locust's counts of answers by name."""
    return {line["name"]: line["num_requests"] for line in asked(port, "stats/requests")["stats"]}


def asked(port: int, path: str, **fields: str) -> Any:  # noqa: ANN401  # what JSON holds
    """Ask Locust's page, as its buttons do."""
    sent = urllib.parse.urlencode(fields).encode() or None
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/{path}", sent, timeout=60) as answer:
        return json.load(answer)


def test_the_page_s_commands_make_a_secret_file_for_each_secret(tmp_path: Path) -> None:
    secrets = make_secrets(tmp_path)
    assert {f"./secrets/{path.name}" for path in secrets.iterdir()} == {
        secret["file"] for secret in COMPOSE["secrets"].values()
    }
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets.iterdir()} == {0o644}
    assert {len(path.read_text(encoding="utf-8").split()) for path in secrets.iterdir()} == {1}
