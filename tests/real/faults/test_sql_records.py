"""Records in SQL: several processes, kills, a database that is held up, Once, and bad input."""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from segmented import Lock
from segmented.dedup import AsyncDedup, AsyncSqlRecords, Dedup, SqlRecords, StoreEffect
from segmented.dedup.sql_records import STALE_MAX, WAIT_MS, records
from segmented.errors import InFlight, InvalidInput, StoreRefused, StoreUnavailable
from segmented.locks.sql_edge import is_in_autocommit
from segmented.process import THIS
from tests.support.paths import ROOT
from tests.support.workers.selling import until

KEYS = [f"order-{number}" for number in range(20)]


@pytest.fixture(params=["postgresql", "sqlite"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("postgres_database" if request.param == "postgresql" else "sqlite_url")
    return found


@pytest.fixture
def engine(url: str) -> Iterator[sqlalchemy.Engine]:
    made = sqlalchemy.create_engine(url)
    SqlRecords(made).create()
    yield made
    made.dispose()


def start(url: str, log: Path, ttl: float, *keys: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.real.faults.sql_caller", url, str(log), str(ttl), *keys]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.usefixtures("engine")
def test_four_processes_run_each_of_twenty_calls_once_and_all_get_its_result(url: str, tmp_path: Path) -> None:
    log = tmp_path / "runs"
    processes = [start(url, log, 60, *KEYS) for _ in range(4)]
    said = [process.communicate(timeout=100)[0].split("\n")[:-1] for process in processes]
    assert said == [[f"done {key}" for key in KEYS]] * 4
    assert Counter(log.read_text().split()) == dict.fromkeys(KEYS, 1)


def test_the_call_of_a_killed_process_runs_again_after_its_lease(
    url: str, engine: sqlalchemy.Engine, tmp_path: Path
) -> None:
    log = tmp_path / "runs"
    with start(url, log, 2, "hang") as process:
        until(log.exists)
        dedup = Dedup(SqlRecords(engine), "calls", ttl=2)
        with pytest.raises(InFlight):
            dedup.call("hang", lambda: "no")
        process.kill()
    assert dedup.call("hang", lambda: "again", timeout=100) == "again"
    assert log.read_text() == "hang\n"


def test_a_later_run_has_a_higher_fencing_token_also_after_the_row_was_forgotten(engine: sqlalchemy.Engine) -> None:
    store = SqlRecords(engine)
    dedup = Dedup(store, "app", keep=0.001)
    tokens = []
    for _ in range(3):
        with dedup.begin("k") as run:
            assert not run.is_replay
            tokens.append(run.fencing_token)
        with engine.begin() as connection:
            connection.execute(sqlalchemy.delete(records))
    assert tokens == sorted(set(tokens))


def test_rows_of_which_nothing_is_left_are_deleted_while_others_are_written(engine: sqlalchemy.Engine) -> None:
    row = {"namespace": "old", "shard": 0, "body": "{}", "ends_ms": 1}
    with engine.begin() as connection:
        connection.execute(sqlalchemy.insert(records), [{**row, "record_key": str(n)} for n in range(STALE_MAX + 5)])
    dedup = Dedup(SqlRecords(engine), "app")
    for number in range(50):  # two operations a call
        dedup.call(f"k{number}", lambda: 1)
    with engine.connect() as connection:
        left = sqlalchemy.select(sqlalchemy.func.count()).where(records.c.namespace == "old")
        assert connection.execute(left).scalar() == 5


def test_a_row_that_another_transaction_holds_is_waited_for_with_an_end(postgres_database: str) -> None:
    engine = sqlalchemy.create_engine(postgres_database)
    store = SqlRecords(engine)
    store.create()
    dedup = Dedup(store, "app", ttl=3)  # renewed, and so waiting for the row, when it ends
    with dedup.begin("k"), engine.connect() as holder, holder.begin():
        holder.execute(sqlalchemy.select(records).with_for_update())
        with pytest.raises(StoreUnavailable, match="a record was not free in time: canceling statement due to lock"):
            dedup.call("k", lambda: 1)
        holder.rollback()
    assert WAIT_MS == 5_000
    store.close()
    assert engine.pool.status().endswith("Current Checked out connections: 0")
    engine.dispose()
    with pytest.raises(StoreUnavailable, match="is closed: make another one with its engine"):
        dedup.call("k", lambda: 1)


@pytest.mark.usefixtures("engine")
def test_two_threads_of_a_forked_process_that_use_records_first_get_their_answers(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, both = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool), Barrier(2, timeout=10)
    dedup = Dedup(SqlRecords(own), "app")
    monkeypatch.setattr(THIS, "process_id", THIS.process_id + 1)  # as in a child
    sqlalchemy.event.listen(own, "engine_disposed", lambda _: both.wait())
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda key: dedup.call(key, lambda: key), "ab")) == ["a", "b"]


@pytest.mark.parametrize("level", ["SERIALIZABLE", "AUTOCOMMIT"])
def test_the_isolation_level_of_the_engine_does_not_matter(url: str, engine: sqlalchemy.Engine, level: str) -> None:
    own = sqlalchemy.create_engine(url, isolation_level=level)
    first, second = Dedup(SqlRecords(own), "app"), Dedup(SqlRecords(engine), "app")
    with first.begin("k") as run:
        assert not run.is_replay
        with pytest.raises(InFlight):
            second.begin("k")
        run.finish(5)
    assert second.call("k", lambda: 6) == 5
    with own.connect() as connection:
        assert is_in_autocommit(connection) is (level == "AUTOCOMMIT")
        assert level == "AUTOCOMMIT" or connection.get_isolation_level() == level
    own.dispose()


def test_a_task_with_once_runs_once_with_records_in_sql(engine: sqlalchemy.Engine) -> None:
    from celery import Celery  # noqa: PLC0415  # where it is not installed, this one test is skipped
    from celery.contrib.testing.worker import start_worker  # noqa: PLC0415  # as above

    from segmented.dedup.celery import Once, unique  # noqa: PLC0415  # as above

    app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.once_store = SqlRecords(engine)
    ran: list[str] = []

    @app.task(base=Once, once=unique("{order_id}", keep="1h"), name=f"shop.charge.{engine.dialect.name}")
    def charge(order_id: str, amount: int) -> int:
        ran.append(order_id)
        return amount

    with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=100):
        handles: list[Any] = [charge.delay("o-7", 5) for _ in range(3)]
        assert [handle.get(timeout=100) for handle in handles] == [5, 5, 5]
        again: Any = charge.delay("o-7", 5)
        assert again.is_repeat
    assert ran == ["o-7"]


def test_what_only_redis_can_do_is_refused_with_a_sentence(engine: sqlalchemy.Engine) -> None:
    store = SqlRecords(engine)
    with pytest.raises(InvalidInput, match="SqlRecords keeps the records of Dedup and Once alone: AcquireLock needs"):
        Lock(store, "door").acquire()
    with Dedup(store, "app").begin("k") as run:
        assert not run.is_replay
        with pytest.raises(InvalidInput, match="a StoreEffect runs in Redis"):
            run.finish_with(StoreEffect("return 1"))


def test_a_database_that_cannot_keep_records_is_refused_with_a_sentence(url: str) -> None:
    engine = sqlalchemy.create_engine(url)
    with pytest.raises(StoreRefused, match=r"table segmented_records is missing; make it with SqlRecords\(engine\).c"):
        Dedup(SqlRecords(engine), "app").call("k", lambda: 1)
    engine.dispose()
    with pytest.raises(InvalidInput, match="PostgreSQL or SQLite, and this engine is for mysql"):
        SqlRecords(sqlalchemy.create_engine("mysql+pymysql://localhost/shop"))
    with pytest.raises(InvalidInput, match="needs a SQLite file: a database in memory"):
        SqlRecords(sqlalchemy.create_engine("sqlite://"))
    with pytest.raises(InvalidInput, match="AsyncSqlRecords takes a SQLAlchemy AsyncEngine, not Engine"):
        AsyncSqlRecords(engine)  # type: ignore[arg-type]  # the mistake


@pytest.mark.parametrize("where", ["sqlite:///{}/none/records.sqlite", "postgresql+psycopg://shop@/shop?host={}"])
def test_a_database_that_is_away_is_a_store_that_is_away(where: str, tmp_path: Path) -> None:
    store = SqlRecords(sqlalchemy.create_engine(where.format(tmp_path)))
    for ask in (store.create, lambda: Dedup(store, "app").begin("k")):
        with pytest.raises(StoreUnavailable, match="records in SQL: the database cannot be reached"):
            ask()
    if not where.startswith("sqlite"):
        asynchronous = AsyncSqlRecords(create_async_engine(where.format(tmp_path)))
        with pytest.raises(StoreUnavailable, match="records in SQL: the database cannot be reached"):
            asyncio.run(AsyncDedup(asynchronous, "app").read("k"))


def test_a_result_for_which_the_pool_had_no_connection_is_kept_later(url: str) -> None:
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.QueuePool, pool_size=1, max_overflow=0, pool_timeout=0)
    store = SqlRecords(engine)
    store.create()
    dedup = Dedup(store, "app")
    run = dedup.begin("k")
    assert not run.is_replay
    with engine.connect(), pytest.raises(StoreUnavailable, match="no connection of the pool was free in time"):
        run.finish("first")
    other = sqlalchemy.create_engine(url)  # the pool's one connection may be with the thread that keeps the result now
    assert Dedup(SqlRecords(other), "app").call("k", lambda: "second", timeout=100) == "first"
    engine.dispose()
    other.dispose()
