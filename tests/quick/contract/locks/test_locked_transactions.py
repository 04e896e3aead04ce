"""A lock that ends with the caller's transaction: row I4 of the catalogue."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.engine import Engine

from segmented import AsyncMemoryStore, Lease, Lock, MemoryStore
from segmented.clock import ManualClock
from segmented.errors import InvalidInput, LeaseLost
from segmented.locks import AsyncLock
from segmented.locks.locked_decorator import locked

SOON = 30.0
ADD = sa.text("INSERT INTO sold VALUES (:sku)")
COUNT = sa.text("SELECT count(*) FROM sold")


@pytest.fixture
def engine(sqlite_url: str) -> Iterator[Engine]:
    made = sa.create_engine(sqlite_url)
    with made.begin() as connection:
        connection.execute(sa.text("CREATE TABLE sold (sku TEXT)"))
    yield made
    made.dispose()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


def seller(store: MemoryStore, **options: Any) -> Callable[..., None]:  # noqa: ANN401  # those of locked
    def sell(session: orm.Session | sa.Connection, sku: str, *, lease: Lease | None = None) -> None:
        assert lease is not None
        session.execute(ADD, {"sku": sku})

    decorated: Callable[..., None] = locked("{sku}", store=store, transaction="session", lease_as="lease", **options)(
        sell
    )
    return decorated


def is_free(store: MemoryStore, name: str = "shirt") -> bool:
    lease = Lock(store, name).try_acquire()
    if lease is not None:
        lease.release()
    return lease is not None


def test_i4_the_lock_is_held_until_the_session_has_committed(engine: Engine, store: MemoryStore) -> None:
    sell, free = seller(store), list[bool]()
    with orm.Session(engine) as session:
        sa.event.listen(session, "after_commit", lambda _: free.append(is_free(store)))
        sell(session, "shirt")
        free.append(is_free(store))
        session.commit()
        free.append(is_free(store))
    assert free == [False, False, True]


@pytest.mark.parametrize("end", ["rollback", "close"])
def test_i4_the_lock_ends_with_a_rollback_or_a_close_too(engine: Engine, store: MemoryStore, end: str) -> None:
    with orm.Session(engine) as session:
        seller(store)(session, "shirt")
        assert not is_free(store)
        getattr(session, end)()
        assert is_free(store)


def test_a_body_that_commits_keeps_its_lock_until_it_returns(engine: Engine, store: MemoryStore) -> None:
    free: list[bool] = []

    @locked("{sku}", store=store, transaction="session")
    def sell(session: orm.Session, sku: str) -> None:
        session.execute(ADD, {"sku": sku})
        session.commit()
        free.append(is_free(store))

    with orm.Session(engine) as session:
        sell(session, "shirt")
        free.append(is_free(store))
    assert free == [False, True]


def test_i4_the_lock_is_held_until_the_connection_is_back_after_its_commit(engine: Engine, store: MemoryStore) -> None:
    with engine.begin() as connection:
        seller(store)(connection, "shirt")
        assert not is_free(store)
    assert is_free(store)


@pytest.mark.parametrize("makes", ["session", "connection"])
def test_a_commit_that_the_lease_no_longer_covers_is_refused(
    engine: Engine, store: MemoryStore, clock: ManualClock, makes: str
) -> None:
    with orm.Session(engine) if makes == "session" else engine.connect() as work:
        seller(store)(work, "shirt")
        clock.advance(60)
        with Lock(store, "shirt").acquire(timeout=0):
            with pytest.raises(LeaseLost, match="shirt"):
                work.commit()
            work.rollback()
    with engine.connect() as connection:
        assert connection.execute(COUNT).scalar() == 0


# --- any other database: a hook ---


def test_a_hook_that_raises_releases_and_the_body_does_not_run(store: MemoryStore) -> None:
    ran: list[str] = []

    def hook(*_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        locked("{object}", store=store, release_with=hook)(ran.append)("shirt")
    assert (ran, is_free(store)) == ([], True)


# --- asyncio ---


async def is_free_async(store: AsyncMemoryStore) -> bool:
    lease = await AsyncLock(store, "shirt").try_acquire()
    if lease is not None:
        await lease.release()
    return lease is not None


@pytest.mark.parametrize("is_told_in", ["the loop", "a thread"])
def test_a_hook_releases_an_asynchronous_lock_from_anywhere(is_told_in: str) -> None:
    async def run() -> bool:
        store = AsyncMemoryStore()
        ends: list[Callable[[], None]] = []

        @locked("{sku}", store=store, release_with=lambda release, *_: ends.append(release))
        async def sell(sku: str) -> str:
            return sku

        await sell("shirt")
        assert not await is_free_async(store)
        if is_told_in == "the loop":
            ends[0]()
        else:
            await asyncio.to_thread(ends[0])
        await AsyncLock(store, "shirt").acquire(timeout=SOON)
        return True

    assert asyncio.run(run())


def test_a_hook_that_speaks_after_the_loop_is_closed_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    ends: list[Callable[[], None]] = []

    async def run() -> None:
        store = AsyncMemoryStore()

        @locked("{sku}", store=store, release_with=lambda release, *_: ends.append(release))
        async def sell(sku: str) -> str:
            return sku

        await sell("shirt")

    asyncio.run(run())
    with caplog.at_level(logging.WARNING, logger="segmented.locks"):
        ends[0]()
    assert [record.message for record in caplog.records] == ["lease.release_failed"]


def test_what_is_no_transaction_is_refused_before_the_lock_is_taken(store: MemoryStore) -> None:
    sell = seller(store)
    with pytest.raises(InvalidInput, match=r"'session' in locked on .*sell is of type str, not a Session or"):
        sell("no session", "shirt")
    assert is_free(store)
