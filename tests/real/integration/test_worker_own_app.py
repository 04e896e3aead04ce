"""Our tasks in a user's own Celery app, with queues, serializer and a task of the user's own."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from celery import Celery
from pydantic import SecretStr

from segmented import protocol as op
from segmented.celery import WorkerSettings, add_tasks, settings as current
from segmented.celery.apps import CHORES, TASK_MODULES, TASK_OPTIONS
from segmented.celery.messages import publisher, queue_of, waiting
from segmented.errors import LeaseLost
from segmented.orders import Gate, connect
from segmented.servers import ValkeyServer
from segmented.stock import Outbox, Pool
from segmented.stores.redis import RedisStore
from tests.support.workers.selling import until
from tests.support.workers.worker_processes import clean_environment

END_SECONDS: Final = 60.0
SHOP: Final = """
import os
from celery import Celery
from segmented import Lock, MemoryStore
from segmented.celery import add_tasks
from segmented.protocol import RevokeLock

app = Celery("shop", broker=os.environ["SHOP_BROKER"], backend=os.environ["SHOP_BROKER"])
add_tasks(app)
app.config_from_object("shop_config")


@app.task(name="shop.under_a_lost_lease")
def under_a_lost_lease():
    with MemoryStore() as store, Lock(store, "report").acquire() as lease:
        store.execute(RevokeLock("report", "r"))
        lease.renew()


@app.task(name="shop.add")
def add(a, b):
    return a + b
"""
CONFIG: Final = """
task_serializer = "yaml"
accept_content = ["yaml"]
result_serializer = "yaml"
task_routes = {"segmented.*": {"queue": "stock"}}
task_default_queue = "shop"
beat_schedule = {"hello": {"task": "shop.add", "schedule": 3600.0, "args": (1, 2)}}
"""


@pytest.fixture
def settings(valkey: ValkeyServer, sqlite_url: str) -> Iterator[WorkerSettings]:
    made = WorkerSettings(
        url=SecretStr(valkey.url),
        database=SecretStr(sqlite_url),
        broker_on_stock_server=True,
        forget_after=3_600.0,
        pool="solo",
    )
    yield made
    current.use(None)


@pytest.fixture
def app(settings: WorkerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Celery]:
    """The user's app, as the worker has it."""
    (tmp_path / "shop_config.py").write_text(CONFIG, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    made = Celery("shop", broker=settings.broker_url, backend=settings.broker_url, set_as_current=False)
    add_tasks(made, settings)
    made.config_from_object("shop_config")
    yield made
    made.close()
    sys.modules.pop("shop_config", None)


@pytest.fixture
def mugs(settings: WorkerSettings, app: Celery) -> Iterator[Pool]:
    """Ten mugs in two segments; orders go to the user's app."""
    store = RedisStore.from_url(settings.url.get_secret_value())
    with store, Gate(connect(settings.database.get_secret_value())) as gate:
        pool = Pool(store, "mug", outbox=Outbox(publisher(app)))
        gate.create()
        Pool(pool.store, pool.sku, gate=gate).open(stock=10, segments=2)
        yield pool


@pytest.fixture
def worker(settings: WorkerSettings, app: Celery, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    command = [sys.executable, "-m", "celery", "-A", "shop", "worker", "-P", "solo", "-Q", "stock,shop"]
    environment = clean_environment(tmp_path, {"SHOP_BROKER": str(app.conf.broker_url), **settings.environment()})
    with subprocess.Popen([*command, "--loglevel", "WARNING"], cwd=tmp_path, env=environment) as process:
        yield process
        process.terminate()
        assert process.wait(END_SECONDS) == 0


@pytest.mark.usefixtures("worker")
def test_a_users_own_app_finishes_submitted_orders_and_reports_errors_of_its_tasks(app: Celery, mugs: Pool) -> None:
    handles = [mugs.submit(f"order-{number}", quantity=2) for number in range(6)]
    states = [str(getattr(handle.wait(END_SECONDS), "state", "refused")) for handle in handles]
    assert sorted(states) == ["confirmed"] * 5 + ["refused"]
    assert app.send_task("shop.add", (2, 3)).get(timeout=END_SECONDS) == 5
    assert (mugs.state().confirmed, mugs.audit().is_clean) == (10, True)
    with pytest.raises(LeaseLost, match=r"^lease on 'report' is lost: it lapsed or was taken away$") as caught:
        app.send_task("shop.under_a_lost_lease").get(timeout=END_SECONDS)
    assert (type(caught.value), caught.value.name) == (LeaseLost, "report")


@pytest.mark.usefixtures("worker")
def test_a_users_own_app_keeps_a_message_of_ours_that_cannot_be_read(app: Celery, mugs: Pool) -> None:
    body = {"v": 1, "sku": "mug", "orders": ["a"]}
    with app.producer_pool.acquire(block=True) as producer:
        for part in ("x", {"callbacks": 5}, {"hostname": "x"}):
            headers = {"task": "segmented.take_envelope", "id": "1"}
            producer.publish([[body], {}, part], headers=headers, routing_key="stock", serializer="yaml")
    app.send_task("segmented.take_envelope", (body,), retries=-5)
    app.send_task("segmented.take_order", ("mug", "a", 1, None, "of a newer shape"))
    app.send_task("segmented.take_order", ("mug", "a", "1"))
    until(lambda: len(mugs.store.execute(op.ListMessages("segmented"))) == 6)
    assert mugs.submit("order-1").wait(END_SECONDS)
    assert (mugs.state().confirmed, mugs.audit().is_clean) == (1, True)


@pytest.mark.usefixtures("mugs")
def test_a_message_waits_in_the_queue_of_the_users_route_in_the_users_serializer(
    app: Celery, mugs: Pool, valkey: ValkeyServer
) -> None:
    mugs.submit("order-1", quantity=1)
    until(lambda: waiting(app, "segmented.take_envelope") == 1)
    with redis.Redis.from_url(valkey.url.replace("db=0", "db=1")) as broker:
        (message,) = broker.lrange("stock", 0, -1)
    assert b'"content-type": "application/x-yaml"' in message
    assert queue_of(app, "segmented.sweep") == "stock"
    assert queue_of(app, "shop.add") == "shop"


def test_a_configuration_that_is_loaded_later_keeps_our_tasks_and_the_users_schedule(app: Celery) -> None:
    assert set(app.conf.beat_schedule) == {"hello", *CHORES}
    assert tuple(app.conf.include) == TASK_MODULES
    assert app.conf.task_serializer == "yaml"
    assert app.conf.task_acks_late is False
    app.loader.import_default_modules()
    task: Any = app.tasks["segmented.take_envelope"]
    assert {option: getattr(task, option) for option in TASK_OPTIONS} == TASK_OPTIONS


def test_tasks_can_be_added_to_an_app_that_is_configured_already(settings: WorkerSettings) -> None:
    with Celery("late", set_as_current=False) as late:
        assert late.conf.task_default_queue == "celery"
        add_tasks(late, settings)
        add_tasks(late, settings)
        assert set(late.conf.beat_schedule) == set(CHORES)
        assert tuple(late.conf.include) == TASK_MODULES
