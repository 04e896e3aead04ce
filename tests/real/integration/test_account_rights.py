"""An account that lacks a right is refused at the first contact, before anything is written."""

import asyncio
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
import redis
import sqlalchemy
from celery import Celery

from segmented import protocol as op
from segmented.celery.apps import CHORES, celery_settings
from segmented.celery.settings import WorkerSettings
from segmented.errors import InvalidInput, StoreRefused
from segmented.keys import shard_keys
from segmented.locks import AsyncLock, Lock
from segmented.models import Order, Reserved, Settled
from segmented.orders import Gate, connect
from segmented.servers import PostgresServer, ValkeyServer
from segmented.stock import Grant, Pool
from segmented.stores.redis import AsyncRedisStore, RedisStore
from segmented.stores.redis.connections import IN_CLUSTER, OTHERS, SAMPLES
from segmented.stores.redis.listener import REFUSED
from tests.fixtures.stores_deployed import deployed_side, nodes_of
from tests.support.long_run import in_the_long_run
from tests.support.paths import ROOT
from tests.support.servers.deployments import Cluster
from tests.support.servers.nodes import Node
from tests.support.workers.selling import until
from tests.support.workers.worker_processes import working

COMMANDS: Final = sorted({*SAMPLES, *(line.split()[0] for line in OTHERS)})
ALL: Final = ("~seg:*", "&seg:*", "+@all")


class Account:
    """An account of a server, whose rules change."""

    def __init__(self, server: redis.Redis, url: str) -> None:
        self.server = server
        self.url = f"{url}&username=app&password=pw"

    def may(self, *rules: str) -> None:
        self.server.execute_command("ACL", "SETUSER", "app", "reset", "on", ">pw", *rules)


@pytest.fixture
def account(private_valkey: ValkeyServer) -> Iterator[Account]:
    with redis.Redis.from_url(private_valkey.url) as server:
        yield Account(server, private_valkey.url)


def by_url(url: str) -> None:
    RedisStore.from_url(url).close()


def by_client(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        RedisStore(client).close()


def unchecked(url: str) -> None:
    with redis.Redis.from_url(url) as client, RedisStore.unchecked(client) as store:
        store.execute(op.OpenPool("poster", 10, 2, gated=False))


def by_url_in_asyncio(url: str) -> None:
    async def connect() -> None:
        await (await AsyncRedisStore.from_url(url)).close()

    asyncio.run(connect())


each_contact = pytest.mark.parametrize("contact", [by_url, by_client, unchecked, by_url_in_asyncio])


@each_contact
def test_each_denied_command_of_a_store_is_named_before_anything_is_written(
    account: Account, contact: Callable[[str], None]
) -> None:
    for command in COMMANDS:
        account.may(*ALL, f"-{command.lower()}")
        with pytest.raises(InvalidInput) as caught:
            contact(account.url)
        is_message = command in {"PUBLISH", "SUBSCRIBE"}
        rule = f"+{command.lower()} &seg:*" if is_message else f"+{command.lower()}"
        said = f"{command} to the channels of its keys" if is_message else command
        assert f" may not {said}, which locks and stock need: add the rule with " in str(caught.value)
        assert str(caught.value).endswith(f"ACL SETUSER <account> {rule}")
        assert "pw" not in str(caught.value)
    assert (len(COMMANDS), account.server.dbsize()) == (45, 0)


@each_contact
def test_an_account_without_channels_is_refused_with_the_rule_to_add(
    account: Account, contact: Callable[[str], None]
) -> None:
    account.may("~seg:*", "+@all", "resetchannels")
    with pytest.raises(InvalidInput, match=r"ACL SETUSER <account> \+publish \+subscribe &seg:\*$"):
        contact(account.url)
    assert account.server.dbsize() == 0


@each_contact
def test_an_account_with_the_rights_to_its_own_names_is_used(account: Account, contact: Callable[[str], None]) -> None:
    for rules in (ALL, ("~seg:{poster:*", "&seg:{poster:*", "+@all"), ("~*", "&*", "+@all")):
        account.may(*rules)
        contact(account.url)


@pytest.mark.parametrize("denied", [line.split()[0] for line in IN_CLUSTER])
def test_an_account_of_a_cluster_may_send_and_get_the_messages_of_its_slots(cluster: Cluster, denied: str) -> None:
    for node in cluster.nodes:
        node.ask("ACL", "SETUSER", "app", "reset", "on", ">pw", *ALL, f"-{denied.lower()}")
    url = cluster.url.replace("://", "://app:pw@")
    with pytest.raises(InvalidInput, match=rf"may not {denied} to the channels of its keys") as caught:
        by_url(url)
    assert str(caught.value).endswith(f"ACL SETUSER <account> +{denied.lower()} &seg:*")
    for node in cluster.nodes:
        node.ask("ACL", "SETUSER", "app", f"+{denied.lower()}")
    by_url(url)


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_an_account_without_the_channel_of_its_listener_is_told_so(
    account: Account, caplog: pytest.LogCaptureFixture, *, is_async: bool
) -> None:
    """The rights of an account with the keys of its own names alone cannot be tried at the first contact."""
    account.may("~seg:lock:{mug*", "&seg:lock:{mug*", "+@all")

    def wait() -> None:
        with RedisStore.from_url(account.url) as store:
            Lock(store, "mug", ttl=60).acquire(timeout=60).release()

    async def wait_in_a_loop() -> None:
        async with await AsyncRedisStore.from_url(account.url) as store:
            await (await AsyncLock(store, "mug", ttl=60).acquire(timeout=60)).release()

    with RedisStore.from_url(account.url) as store, ThreadPoolExecutor(1) as threads:
        lease = Lock(store, "mug", ttl=60).acquire()
        waiting = threads.submit((lambda: asyncio.run(wait_in_a_loop())) if is_async else wait)
        until(lambda: REFUSED in caplog.text)
        account.may(*ALL)
        lease.release()
        waiting.result(60)
    assert caplog.text.count(REFUSED) == 1


def test_channels_that_are_taken_away_later_stop_no_sale_and_no_release(account: Account) -> None:
    account.may(*ALL)
    with RedisStore.from_url(account.url) as store:
        pool = Pool(store, "poster")
        pool.open(stock=10, segments=2)
        grant = pool.grant(Order("a", 2))
        assert isinstance(grant, Grant)
        lease = Lock(store, "x", ttl=60).try_acquire()
        account.server.execute_command("ACL", "SETUSER", "app", "resetchannels")
        assert isinstance(grant.confirm(), Settled)
        assert lease is not None
        lease.release()
        assert isinstance(pool.reserve(Order("b", 3)), Reserved)
        assert pool.audit().is_clean


@pytest.mark.parametrize("denied", ["hset", "zrem", "zadd"])
def test_a_change_whose_script_was_refused_in_the_middle_is_mended_by_the_repair(account: Account, denied: str) -> None:
    """A right that is taken away after the first contact."""
    account.may(*ALL)
    with RedisStore.from_url(account.url) as store, RedisStore(account.server) as whole:
        pool, mender = Pool(store, "poster"), Pool(whole, "poster")
        pool.open(stock=10, segments=2)
        pool.reserve(Order("other", 1))
        grant = pool.grant(Order("a", 2))
        assert isinstance(grant, Grant)
        account.server.execute_command("ACL", "SETUSER", "app", f"-{denied}")
        with pytest.raises(StoreRefused, match="permissions"):
            grant.confirm()
        assert grant.holder_id  # as another process that goes on with it would
        state = mender.state()
        assert (state.sequence, account.server.xlen(shard_keys("poster").ledger)) == (3, 4)
        assert not mender.audit().is_clean
        assert mender.repair(mender.audit(), yes=True).is_clean
        state = mender.state()
        assert (state.available, state.reserved, state.confirmed) == (7, 1, 2)
        assert isinstance(mender.reserve(Order("b", 3)), Reserved)
        assert mender.audit().is_clean


@each_contact
def test_each_denied_command_is_named_before_anything_is_written(
    account: Account, contact: Callable[[str], None]
) -> None:
    for command in COMMANDS:
        account.may(*ALL, f"-{command.lower()}")
        with pytest.raises(InvalidInput) as caught:
            contact(account.url)
        of_channels = command in {"PUBLISH", "SUBSCRIBE"}
        rule = f"+{command.lower()}" + (" &seg:*" if of_channels else "")
        said = command + (" to the channels of its keys" if of_channels else "")
        assert f" may not {said}, which " in str(caught.value)
        assert str(caught.value).endswith(f"ACL SETUSER <account> {rule}")
        assert "pw" not in str(caught.value)
    assert (len(COMMANDS), account.server.dbsize()) == (45, 0)


# The accounts of the example files are enough: for locks and pools on each deployment, and for workers.


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
