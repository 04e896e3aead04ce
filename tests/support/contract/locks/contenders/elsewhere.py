"""This library's locks that are kept elsewhere than on Redis: in the rows of a SQL database, and in ZooKeeper.

The suite's proxies, and its look behind the lock, are for Redis; these run the rows that need neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import sqlalchemy
from kazoo.client import KazooClient
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from bench.proof.peers.locks.contender import WHY_NOT, Contender
from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost
from segmented.locks.sql_row import AsyncSqlRowLock, HeldRow, SqlRowLock
from segmented.locks.sql_table import async_create_lock_table, create_lock_table
from segmented.locks.zookeeper import AsyncZooKeeperLock, ZooKeeperLock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.proof.peers.locks.contender import Body, Handle, Hold

WAIT_INSIDE: Final = 30.0
SESSION_SECONDS: Final = 30.0
"""As long as the server allows."""
START_SECONDS: Final = 60.0
PLAIN: Final = {"prepare_threshold": None}
"""A pooler hands each transaction another server session, which knows of no statement prepared in the last one."""
END_BACKEND: Final = sqlalchemy.text("SELECT pg_terminate_backend(:pid)")
BACKEND: Final = sqlalchemy.text("SELECT pg_backend_pid()")
NOT_REDIS: Final = {"wire": "the suite's wire, and its look behind the lock, are for Redis"}


class Elsewhere(Contender):
    """What is the same for all of them."""

    packages = ("segmented-locks",)
    refused = (InvalidInput,)
    servers = 0

    def __init__(self, url: str) -> None:
        """Be on the server at `url`."""
        self.url = url
        self.near: Any = None
        self.begun: list[Any] = []
        """Connections whose transactions have begun: no garbage collector may find them open."""

    def key(self, name: str) -> str:
        """There is none on Redis."""
        raise NotImplementedError


class Transaction(NamedTuple):
    """A name held by a transaction of its own."""

    connection: Any
    row: HeldRow


class SqlRows(Elsewhere):
    """`SqlRowLock`: each acquire is a transaction, and its commit is the release."""

    title = "SqlRowLock"
    offers = frozenset({"fencing", "rows"})
    lost = (DBAPIError,)
    why_not: Mapping[str, str] = {
        **WHY_NOT,
        **NOT_REDIS,
        "alone": "its handle belongs to one transaction, which may acquire again",
    }

    def connect(self, urls: Sequence[str]) -> sqlalchemy.Engine:
        """Make an engine, and the table."""
        del urls
        engine = sqlalchemy.create_engine(self.url, connect_args=PLAIN)
        if self.near is None:
            create_lock_table(engine)
            self.near = engine
        return engine

    def close(self, client: sqlalchemy.Engine) -> None:
        """Close its connections."""
        while self.begun:
            self.begun.pop().close()
        client.dispose()

    def make(self, client: sqlalchemy.Engine, name: str, ttl: float | None) -> Handle:
        """A handle is what begins transactions."""
        del ttl
        return client, name

    def acquire(self, handle: Handle, wait: float) -> Transaction | None:
        """Begin, and lock the row."""
        engine, name = handle
        connection = engine.connect()
        connection.begin()
        self.begun.append(connection)
        try:
            return Transaction(connection, SqlRowLock(connection, name).acquire(timeout=wait))
        except AcquireTimeout:
            connection.close()
            return None

    def try_acquire(self, handle: Handle) -> Transaction | None:
        """Begin, and lock the row if it is free."""
        return self.acquire(handle, 0)

    def release(self, hold: Transaction) -> None:
        """Commit."""
        try:
            hold.connection.commit()
        finally:
            hold.connection.close()

    def fencing_token(self, hold: Transaction) -> int:
        """Return the row's."""
        return hold.row.fencing_token

    def lapse(self, hold: Transaction) -> None:
        """End its session."""
        with self.near.connect() as other:
            other.execute(END_BACKEND, {"pid": hold.connection.scalar(BACKEND)})

    def take_away(self, hold: Transaction) -> None:
        """End its session."""
        self.lapse(hold)


class AsyncSqlRows(Elsewhere):
    """`AsyncSqlRowLock`; otherwise as above."""

    title = "SqlRowLock"
    is_async = True
    offers = SqlRows.offers | {"cancelling"}
    lost = (DBAPIError,)
    why_not = SqlRows.why_not

    async def connect(self, urls: Sequence[str]) -> AsyncEngine:
        """Make an engine, and the table."""
        del urls
        engine = create_async_engine(self.url, connect_args=PLAIN)
        if self.near is None:
            await async_create_lock_table(engine)
            self.near = engine
        return engine

    async def close(self, client: AsyncEngine) -> None:
        """Close its connections."""
        while self.begun:
            await self.begun.pop().close()
        await client.dispose()

    def make(self, client: AsyncEngine, name: str, ttl: float | None) -> Handle:
        """A handle is what begins transactions."""
        del ttl
        return client, name

    async def acquire(self, handle: Handle, wait: float) -> Transaction | None:
        """Begin, and lock the row."""
        engine, name = handle
        connection: AsyncConnection = await engine.connect()
        await connection.begin()
        self.begun.append(connection)
        try:
            return Transaction(connection, await AsyncSqlRowLock(connection, name).acquire(timeout=wait))
        except AcquireTimeout:
            await connection.close()
            return None

    async def try_acquire(self, handle: Handle) -> Transaction | None:
        """Begin, and lock the row if it is free."""
        return await self.acquire(handle, 0)

    async def release(self, hold: Transaction) -> None:
        """Commit."""
        try:
            await hold.connection.commit()
        finally:
            await hold.connection.close()

    def fencing_token(self, hold: Transaction) -> int:
        """Return the row's."""
        return hold.row.fencing_token

    async def lapse(self, hold: Transaction) -> None:
        """End its session."""
        pid = await hold.connection.scalar(BACKEND)
        async with self.near.connect() as other:
            await other.execute(END_BACKEND, {"pid": pid})

    async def take_away(self, hold: Transaction) -> None:
        """End its session."""
        await self.lapse(hold)


class ZooKeeper(Elsewhere):
    """`ZooKeeperLock`."""

    title = "ZooKeeperLock"
    offers = frozenset({"alone", "with", "telling", "fencing", "fair"})
    lost = (LeaseLost,)
    why_not = WHY_NOT | NOT_REDIS

    def connect(self, urls: Sequence[str]) -> KazooClient:
        """Make a client."""
        del urls
        client = KazooClient(self.url, timeout=SESSION_SECONDS)
        client.start(timeout=START_SECONDS)
        self.near = self.near or client
        return client

    def close(self, client: KazooClient) -> None:
        """Stop it."""
        client.stop()
        client.close()

    def make(self, client: KazooClient, name: str, ttl: float | None) -> Handle:
        """A lease lasts for as long as the session."""
        del ttl
        return ZooKeeperLock(client, name)

    def acquire(self, handle: Handle, wait: float) -> Hold | None:
        """Wait."""
        try:
            return handle.acquire(timeout=wait)
        except AcquireTimeout:
            return None

    def try_acquire(self, handle: Handle) -> Hold | None:
        """Try."""
        return handle.try_acquire()

    def release(self, hold: Hold) -> None:
        """Release."""
        hold.release()

    def fencing_token(self, hold: Hold) -> int:
        """Return the lease's."""
        token: int = hold.fencing_token
        return token

    def run_inside(self, handle: Handle, body: Body) -> None:
        """Use the lease as a context manager."""
        with handle.acquire(timeout=WAIT_INSIDE) as hold:
            body(hold)

    def lapse(self, hold: Hold) -> None:
        """Delete its node, as the end of a session does."""
        self.near.delete(hold.path)

    def take_away(self, hold: Hold) -> None:
        """Delete its node."""
        self.near.delete(hold.path)


class AsyncZooKeeper(ZooKeeper):
    """`AsyncZooKeeperLock`."""

    is_async = True
    offers = ZooKeeper.offers | {"cancelling"}

    def make(self, client: KazooClient, name: str, ttl: float | None) -> Handle:
        """A lease lasts for as long as the session."""
        del ttl
        return AsyncZooKeeperLock(client, name)

    async def acquire(self, handle: Handle, wait: float) -> Hold | None:
        """Wait."""
        try:
            return await handle.acquire(timeout=wait)
        except AcquireTimeout:
            return None

    async def release(self, hold: Hold) -> None:  # type: ignore[override]  # the suite awaits what can be awaited
        """Release."""
        await hold.release()

    async def run_inside(self, handle: Handle, body: Body) -> None:  # type: ignore[override]  # as above
        """Use the lease as a context manager."""
        async with handle.acquire(timeout=WAIT_INSIDE) as hold:
            found = body(hold)
            if found is not None:
                await found


CONTENDERS: Final[dict[str, tuple[str, Callable[[str], Elsewhere]]]] = {
    "SqlRowLock-threads": ("postgres_url", SqlRows),
    "SqlRowLock-asyncio": ("postgres_url", AsyncSqlRows),
    "SqlRowLock-threads-pgbouncer": ("pgbouncer_url", SqlRows),
    "SqlRowLock-asyncio-pgbouncer": ("pgbouncer_url", AsyncSqlRows),
    "ZooKeeperLock-threads": ("zookeeper_url", ZooKeeper),
    "ZooKeeperLock-asyncio": ("zookeeper_url", AsyncZooKeeper),
}
"""Name -> the fixture that gives its server's URL, and what makes it."""
