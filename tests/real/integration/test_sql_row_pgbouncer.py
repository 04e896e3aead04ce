"""Row locks behind a proxy that pools by transaction: what it breaks for session locks, and does not break here.

The tests of tests/real/integration/test_sql_row.py run through the same PgBouncer; these need a pool of a certain size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.errors import AcquireTimeout
from segmented.locks.sql_row import SqlRowLock
from tests.support.servers.sql_locking import SqlFlavour, SqlSide, make_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.pgbouncer import PgBouncer

ADVISORY_LOCKS = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
TIMEOUTS = "SELECT current_setting('lock_timeout'), current_setting('statement_timeout')"


@pytest.fixture
def side_of_two(start_pgbouncer: Callable[..., PgBouncer], postgres_database: str) -> Iterator[SqlSide]:
    """A pooler that shares two connections of the server among all clients."""
    pooler = start_pgbouncer(pool_size=2)
    with SqlSide(
        SqlFlavour("pgbouncer", "sync"), pooler.in_front_of(postgres_database), behind=postgres_database
    ) as side:
        yield side


def test_the_row_lock_excludes_the_second_client_while_clients_change_connections(side_of_two: SqlSide) -> None:
    side = side_of_two
    ours, theirs, third = side.open(), side.open(), side.open()
    backends = set()
    for _ in range(6):
        third.run("SELECT 1")  # takes the connection that was used last, so that ours gets the other one
        ours.acquire("ticket")
        backends.add(side.backend(ours))
        third.rollback()
        assert theirs.try_acquire("ticket") is None
        theirs.rollback()
        ours.commit()
    assert len(backends) == 2


def test_nothing_of_a_wait_is_left_for_the_next_client(side_of_two: SqlSide) -> None:
    side = side_of_two
    side.create(names=["ticket"])
    before = side.admin(TIMEOUTS)
    ours, theirs = side.open(), side.open()
    ours.acquire("ticket")
    with pytest.raises(AcquireTimeout):
        theirs.acquire("ticket", timeout=0.2)
    waiting = side.start(lambda: theirs.acquire("ticket", timeout=20))
    side.wait_for_waiters(1)
    ours.commit()
    waiting.result(60)
    theirs.commit()
    both = [side.open(), side.open()]
    assert [session.run(TIMEOUTS) for session in both] == [before, before]
    assert len({side.backend(session) for session in both}) == 2
    assert side.admin(ADVISORY_LOCKS) == [(0,)]


def test_a_client_that_goes_away_leaves_its_name_free(side_of_two: SqlSide) -> None:
    side = side_of_two
    engine = make_engine(side.engine.url.render_as_string(hide_password=False))
    connection = engine.connect()
    connection.begin()
    SqlRowLock(connection, "ticket").acquire()
    theirs = side.open()
    assert theirs.try_acquire("ticket") is None
    connection.invalidate()
    assert theirs.acquire("ticket").name == "ticket"
    connection.close()
    engine.dispose()
