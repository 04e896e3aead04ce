"""Real workers that are killed, paused and frozen at named points by the library's own pytest plugin."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
import redis
from celery import Celery

from segmented.errors import InvalidInput
from segmented.orders import Gate
from segmented.servers import ValkeyServer
from segmented.stock import Pool
from segmented.testing.plugin import PoolFactory, WorkerFactory
from segmented.testing.worker_process import WorkerProcess, WorkerTrouble
from tests.fixtures.servers import require_postgres
from tests.support.processes import alive
from tests.support.workers.selling import until

AHEAD: Final = 7_200.0
"""A worker whose clock is so far ahead delivers again, at once, what others have in hand: nothing is waited for."""
TASKS: Final = """
import asyncio, os, sqlite3, subprocess
from celery import Celery
from sqlalchemy import create_engine, text
from segmented.protocol import ReadPool
from segmented.stores.redis import AsyncRedisStore

app = Celery("tasks")
app.conf.update(task_acks_late=True, task_default_queue="segmented", broker_connection_retry_on_startup=True)

@app.task(name="read")
def read(sku):
    async def look():
        async with await AsyncRedisStore.from_url(os.environ["SEGMENTED_URL"]) as store:
            await store.execute(ReadPool(sku))
            await store.execute_many([ReadPool(sku), ReadPool(sku)])
    asyncio.run(look())

@app.task(name="send")
def send():
    read.delay("nothing")

@app.task(name="start")
def start():
    for group in (None, 0):
        subprocess.Popen(["sleep", "300"], process_group=group)

@app.task(name="write")
def write(url):
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (a INTEGER)"))
    with engine.connect() as connection:
        connection.execute(text("INSERT INTO t VALUES (1)"))
        connection.commit()
        connection.execute(text("SELECT a FROM t")).all()
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        connection.execute(text("INSERT INTO t VALUES (2)"))
        connection.execute(text("INSERT INTO t VALUES (3)"))
        connection.rollback()
    engine.dispose()
"""


@pytest.fixture
def send(segmented_broker_url: str) -> Iterator[Callable[..., None]]:
    app = Celery("publisher", broker=segmented_broker_url, set_as_current=False)
    app.conf.task_default_queue = "segmented"

    def publish(task: str, *arguments: object) -> None:
        app.send_task(task, arguments)

    yield publish
    app.close()


@pytest.fixture
def mugs(segmented_pool: PoolFactory, segmented_gate: Gate) -> Pool:
    """Ten mugs in two segments."""
    require_postgres()
    return segmented_pool(stock=10, segments=2, gate=segmented_gate)


@pytest.fixture
def messages(segmented_broker: ValkeyServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(segmented_broker.url) as client:
        yield client


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "pointed_tasks.py").write_text(TASKS)
    monkeypatch.syspath_prepend(tmp_path)
    return "pointed_tasks"


def taking(start: WorkerFactory, **options: Any) -> WorkerProcess:  # noqa: ANN401  # those of the factory
    return start(environment={"SEGMENTED_SEGMENT_TTL": "1"}, **options)


def children(worker: WorkerProcess) -> list[psutil.Process]:
    return [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]


def test_f1_an_order_whose_worker_dies_between_effect_and_ack_is_finished_once(
    segmented_worker: WorkerFactory, mugs: Pool, segmented_gate: Gate, send: Callable[..., None]
) -> None:
    first = taking(segmented_worker, pool="prefork", concurrency=2, kill_at="after:commit")
    send("segmented.take_order", mugs.sku, "a", 3, None)
    first.reached("after:commit")
    assert first.wait() == -signal.SIGKILL
    assert (segmented_gate.totals(mugs.sku).sold, mugs.state().reserved, mugs.state().confirmed) == (3, 3, 0)
    second = taking(segmented_worker, clock_offset=AHEAD)
    second.reached("after:ack")  # of a try that found the lease still alive, perhaps; the next one is not far
    until(lambda: mugs.state().confirmed == 3)
    assert (segmented_gate.totals(mugs.sku).sold, mugs.state().reserved, mugs.state().confirmed) == (3, 0, 3)
    assert [row.quantity for row in segmented_gate.each_order(mugs.sku)] == [3]


@pytest.mark.parametrize(
    ("point", "sold", "waiting"),
    [
        ("popped", 0, 0),  # lost: the message is nowhere
        ("before:commit", 0, 1),
        ("before:ack", 3, 1),
    ],
)
def test_a_worker_that_dies_at_a_point_has_done_all_before_it_and_nothing_after_it(
    segmented_worker: WorkerFactory,
    mugs: Pool,
    segmented_gate: Gate,
    send: Callable[..., None],
    messages: redis.Redis,
    point: str,
    sold: int,
    waiting: int,
) -> None:
    worker = taking(segmented_worker, pool="solo", kill_at=point)
    send("segmented.take_order", mugs.sku, "a", 3, None)
    worker.reached(point)
    assert worker.passed()[-1] == point
    assert (segmented_gate.totals(mugs.sku).sold, mugs.state().confirmed) == (sold, sold)
    assert (messages.llen("segmented"), messages.hlen("unacked")) == (0, waiting)


def test_a_paused_worker_can_be_looked_at_and_goes_on(
    segmented_worker: WorkerFactory, mugs: Pool, segmented_gate: Gate, send: Callable[..., None]
) -> None:
    worker = taking(segmented_worker, concurrency=2)
    worker.pause_at("after:commit", nth=2)
    for order_id in ("a", "b", "c"):
        send("segmented.take_order", mugs.sku, order_id, 2, None)
    worker.reached("after:commit")
    until(lambda: mugs.state().confirmed == 4)  # the other thread takes what is there
    assert (segmented_gate.totals(mugs.sku).sold, mugs.state().reserved) == (6, 2)
    worker.release("after:commit")
    until(lambda: mugs.state().confirmed == 6)


def test_f3_a_pools_child_can_be_killed_alone_and_its_order_is_delivered_again(
    segmented_worker: WorkerFactory, mugs: Pool, send: Callable[..., None]
) -> None:
    worker = taking(segmented_worker, pool="prefork")
    worker.kill_at("after:commit", scope="process")
    send("segmented.take_order", mugs.sku, "a", 3, None)
    worker.reached("after:commit")
    until(lambda: mugs.state().confirmed == 3)
    assert worker.is_running
    assert worker.passed().count("before:commit") == 2


def test_a_worker_that_is_stopped_ends_in_order_and_one_that_will_not_is_killed(
    segmented_worker: WorkerFactory, mugs: Pool, send: Callable[..., None]
) -> None:
    idle = taking(segmented_worker, pool="prefork", concurrency=2)
    processes = children(idle)
    assert idle.stop() == 0
    assert alive(processes) == []
    busy = taking(segmented_worker, pause_at="before:commit")
    send("segmented.take_order", mugs.sku, "a", 3, None)
    busy.reached("before:commit")
    with pytest.raises(WorkerTrouble, match="was not gone within 1 s"):
        busy.stop(timeout=1)
    assert not busy.is_running


def test_what_is_wrong_is_said_in_a_sentence(segmented_worker: WorkerFactory, tasks: str) -> None:
    with pytest.raises(InvalidInput, match=r"there is no point 'before:akc' \(did you mean 'before:ack'\?\)"):
        segmented_worker(tasks, kill_at="before:akc")
    worker = segmented_worker(tasks, pool="solo")
    with pytest.raises(InvalidInput, match="nth is 0: the first passage is 1"):
        worker.kill_at("before:ack", nth=0)
    with pytest.raises(InvalidInput, match="there is no point 'acked'"):
        worker.reached("acked")
    worker.kill()
    with pytest.raises(WorkerTrouble, match="did not reach popped: it ended with code -9"):
        worker.reached("popped")
    with pytest.raises(WorkerTrouble, match="is gone, and cannot be sent SIGSTOP"):
        worker.freeze()
