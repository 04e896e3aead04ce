"""A publisher that is killed around the commit of its order: the task runs once if the order is stored, else not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from sqlalchemy import create_engine, func, select

from segmented.dedup.celery import create_outbox, relay_outbox
from segmented.dedup.celery.outbox import outbox
from segmented.dedup.sql import OnceTable
from segmented.servers import ValkeyServer
from tests.real.faults.once_booker import bookings
from tests.real.faults.once_outbox_shop import KEY, orders
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from tests.support.workers.once_steps import Fail
    from tests.support.workers.once_workers import OnceSide

SECONDS: Final = 120.0
POINTS: Final = [("before commit", "", 0, 0), ("after commit", "", 1, 1), ("never", "after_publish", 1, 1)]


@pytest.mark.parametrize(("point", "fail", "stored", "relayed"), POINTS, ids=["before", "after", "published"])
def test_a_publisher_killed_around_its_commit_has_a_task_run_once_per_stored_order(
    prefork_once: OnceSide, postgres_database: str, *, point: str, fail: Fail, stored: int, relayed: int
) -> None:
    """`published`: its message was sent, and the row not deleted, so the relay sends it again."""
    side, engine = prefork_once, create_engine(postgres_database)
    orders.metadata.create_all(engine)
    create_outbox(engine)
    before = side.runs(KEY)
    shop = subprocess.run(
        [sys.executable, "-m", "tests.real.faults.once_outbox_shop", postgres_database, point],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **side.changed(fail=fail).environment()},
        timeout=SECONDS,
        start_new_session=True,  # it is killed with its group
        check=False,
    )
    assert shop.returncode == -signal.SIGKILL
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(orders)).scalar_one() == stored
        message = connection.execute(select(outbox.c.message)).scalar()
    assert [relay_outbox(side.app, engine) for _ in range(2)] == [relayed, 0]
    if message is not None:
        assert side.task("unique").AsyncResult(message).get(timeout=SECONDS) == [KEY, 1]
    side.wait_for(side.is_quiet)
    assert side.runs(KEY) - before == stored
    engine.dispose()


# A worker that is killed around the commit of its effect: the redelivery finds one effect, and gives its result.


def booked(url: str, database: str, point: str) -> tuple[int, int, str]:
    """Run a worker; return its process id, exit code, and what it said."""
    words = [sys.executable, "-m", "tests.real.faults.once_booker", url, database, point]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as worker:
        said, _ = worker.communicate(timeout=SECONDS)
    return worker.pid, worker.returncode, said.strip()


@pytest.mark.parametrize(("point", "rows_at_death"), [("before commit", 0), ("after commit", 1)])
@pytest.mark.parametrize("database", ["sqlite_url"])
def test_a_worker_killed_around_the_commit_leaves_one_effect(
    valkey: ValkeyServer, request: pytest.FixtureRequest, database: str, point: str, rows_at_death: int
) -> None:
    url: str = request.getfixturevalue(database)
    engine = create_engine(url)
    bookings.metadata.create_all(engine)
    OnceTable().create(engine)

    def count() -> int:
        with engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(bookings)).scalar_one()

    first, code, said = booked(valkey.url, url, point)
    assert (code, said, count()) == (-signal.SIGKILL, "", rows_at_death)
    second, code, said = booked(valkey.url, url, "never")
    assert (code, said, count()) == (0, str(first if rows_at_death else second), 1)
    engine.dispose()
