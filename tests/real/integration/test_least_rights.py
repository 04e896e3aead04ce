"""The accounts of the example files are enough: for locks and pools on each deployment, and for workers."""

import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
import redis
import sqlalchemy
from celery import Celery

from segmented.celery.celery_settings import CHORES, celery_settings
from segmented.celery.settings import WorkerSettings
from segmented.errors import StoreRefused
from segmented.orders import Gate, connect
from segmented.servers import PostgresServer, ValkeyServer
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.fixtures.stores_deployed import deployed_side, nodes_of
from tests.support.long_run import in_the_long_run
from tests.support.paths import ROOT
from tests.support.servers.nodes import Node
from tests.support.workers.selling import until
from tests.support.workers.worker_processes import working

ON_A_CLUSTER: Final = (
    "+asking",
    "+cluster|slots",
    "+command",
    "-command|info",
    "+spublish",
    "+ssubscribe",
    "+sunsubscribe",
)
LONG: Final = 600.0

FILES: Final = ROOT / "docs" / "how-to" / "examples" / "accounts"
PASSWORD: Final = "pw"
ASKED_IN_VAIN: Final = {"command|info", "client|setinfo"}
"""A store that may not ask whether the server has newer commands uses scripts; redis-py names itself if it may."""
SECONDS: Final = 120.0


def rules(name: str) -> list[str]:
    """Return the words of an account's line in the example file, with a password."""
    lines = (FILES / "users.acl").read_text("utf-8").splitlines()
    found = {line.split()[1]: line.split()[2:] for line in lines if line.startswith("user ")}
    return [word.replace("PASSWORD", PASSWORD) for word in found[name]]


def create(url: str, name: str, *more: str) -> None:
    with redis.Redis.from_url(url) as server:
        server.execute_command("ACL", "SETUSER", name, "reset", *rules(name), *more)
        server.execute_command("ACL", "LOG", "RESET")


def denied(url: str) -> set[str]:
    """Return what the accounts of a server asked for and may not."""
    with redis.Redis.from_url(url, decode_responses=True) as server:
        return {
            f"{entry['username']}: {entry['object']}"
            for entry in server.execute_command("ACL", "LOG", "100")
            if entry["object"] not in ASKED_IN_VAIN
        }


def as_account(url: str, name: str) -> str:
    """Return the URL of a server on a port, or on a socket, for an account."""
    if url.startswith("unix"):
        return f"{url}&username={name}&password={PASSWORD}"
    return url.replace("://", f"://{name}:{PASSWORD}@")


def test_an_account_for_some_names_may_not_touch_others(private_valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(private_valkey.url) as server:
        limited = [word.replace("seg:*", "seg:{mug*") for word in rules("shop")]
        server.execute_command("ACL", "SETUSER", "mugs", "reset", *limited, "~seg:{outboxes}*")
    with RedisStore.from_url(as_account(private_valkey.url, "mugs")) as store:
        Pool(store, "mug-1").open(stock=1, segments=1)
        with pytest.raises(StoreRefused, match="ermissions to access a key"):
            Pool(store, "lamp").open(stock=1, segments=1)


def test_the_brokers_account_may_not_touch_the_stock(private_valkey: ValkeyServer) -> None:
    create(private_valkey.url, "broker")
    with (
        RedisStore.from_url(as_account(private_valkey.url, "broker")) as store,
        pytest.raises(StoreRefused, match="permissions"),
    ):
        Pool(store, "mug").open(stock=1, segments=1)
    with redis.Redis.from_url(as_account(private_valkey.url, "broker")) as client:
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.hset("seg:{mug}:meta", "state", "open")
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.flushall()


def test_workers_and_their_chores_need_no_more_than_the_three_accounts(
    tmp_path: Path, start_valkey: Callable[..., ValkeyServer], private_postgres: PostgresServer
) -> None:
    stock, broker = start_valkey(), start_valkey()
    create(stock.url, "shop")
    create(broker.url, "broker")
    with Gate(private_postgres.url) as owner:
        owner.create()
    grant_rights(private_postgres.url)
    database = sqlalchemy.make_url(private_postgres.url).set(username="shop")
    settings = {
        "SEGMENTED_URL": as_account(stock.url, "shop"),
        "SEGMENTED_BROKER": as_account(broker.url, "broker"),
        "SEGMENTED_DATABASE": database.render_as_string(hide_password=False),
        "SEGMENTED_FORGET_AFTER": "1",
    }
    with ExitStack() as stack:
        worker = stack.enter_context(working(tmp_path, settings))
        gate = stack.enter_context(Gate(settings["SEGMENTED_DATABASE"]))
        store = stack.enter_context(RedisStore.from_url(settings["SEGMENTED_URL"]))
        pool = Pool(store, "mug", gate=gate)
        pool.open(stock=20, segments=2)
        pool.restock(2, restock_id="r-1")
        pool.reserve("order-0", quantity=2)
        pool.cancel("order-0")
        publisher = stack.enter_context(Celery("publisher", set_as_current=False))
        publisher.conf.update(celery_settings(WorkerSettings.model_validate(given(settings))))
        connection = stack.enter_context(publisher.connection_for_write())
        for number in range(1, 5):
            publisher.send_task("segmented.take_order", ("mug", f"order-{number}", 2), connection=connection)
        until(lambda: gate.totals("mug").sold == 8, seconds=SECONDS)
        for chore in CHORES:
            publisher.send_task(chore, connection=connection)
        until(lambda: set(re.findall(r"Task (\S+)\[\S+ succeeded", worker.said())) >= set(CHORES), seconds=SECONDS)
        assert "Traceback" not in worker.said()
        assert pool.audit().is_clean
        engine = connect(settings["SEGMENTED_DATABASE"])
        stack.callback(engine.dispose)
        rows = stack.enter_context(engine.connect())
        with pytest.raises(sqlalchemy.exc.ProgrammingError, match="must be owner of table segmented_orders"):
            rows.exec_driver_sql("DROP TABLE segmented_orders")
        worker.end()
    assert (denied(stock.url), denied(broker.url)) == (set(), set())


def given(settings: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix("SEGMENTED_").lower(): value for name, value in settings.items()}


def grant_rights(url: str) -> None:
    """Create the role of the example file."""
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.pool.NullPool)
    statements = (FILES / "grants.sql").read_text("utf-8").split(";")
    with engine.connect() as connection:
        for statement in filter(str.strip, statements):
            connection.exec_driver_sql(statement)


@pytest.mark.parametrize("colour", ["sync", *in_the_long_run("async")])
@pytest.mark.parametrize("deployment", ["single_server", "redis70_server", "sentinels", "cluster"])
def test_a_store_of_the_account_locks_waits_sells_and_audits(
    deployment: str, colour: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(deployment)
    nodes: list[Node] = nodes_of(server) if deployment != "sentinels" else list(server.servers)
    for node in nodes:
        create(f"redis://127.0.0.1:{node.port}", "shop", *(ON_A_CLUSTER if deployment == "cluster" else ()))
    side = deployed_side(as_account(server.url, "shop"), colour)
    for name in ("a", "b", "c"):
        held = side.lock(name, ttl=LONG).acquire(timeout=0)
        lock = side.lock(name, ttl=LONG)
        waiter = side.start(lambda lock=lock: lock.acquire(timeout=LONG))  # type: ignore[misc]  # bound in the loop
        held.release()
        waiter.result(SECONDS).release()
    pool = side.pool(side.name())
    pool.open(stock=10, segments=2)
    for number in range(4):
        pool.reserve(f"order-{number}", quantity=2)
        pool.confirm(f"order-{number}")
    assert pool.state().available == 2
    assert pool.audit().is_clean
    side.close()
    for node in nodes:
        assert denied(f"redis://127.0.0.1:{node.port}") == set()
