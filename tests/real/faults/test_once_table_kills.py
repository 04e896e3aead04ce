"""A worker that is killed around the commit of its effect: the redelivery finds one effect, and gives its result."""

import signal
import subprocess
import sys
from typing import Final

import pytest
from sqlalchemy import create_engine, func, select

from segmented.dedup.sql import OnceTable
from segmented.servers import ValkeyServer
from tests.real.faults.once_booker import bookings
from tests.support.paths import ROOT

SECONDS: Final = 120.0


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
