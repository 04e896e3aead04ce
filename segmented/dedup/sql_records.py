"""Records of `Dedup` and `Once` in PostgreSQL or SQLite, for programs without Redis."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from segmented.clock import SystemClock
from segmented.dedup.sql_record_rows import STALLED_MS, checked_operation, create, forget_stale, perform
from segmented.errors import InvalidInput, SegmentedError, StoreUnavailable, TransactionConflict
from segmented.imports import needs
from segmented.locks.sql_edge import translated
from segmented.orders.engine import shown
from segmented.plans.store_kinds import NotPickled
from segmented.process import THIS
from segmented.stores.one_by_one import async_one_by_one, one_by_one
from segmented.stores.wakeups import AsyncioWakeups, ThreadWakeups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.clock import Clock
    from segmented.plans.line import Offer, Place
    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")
TRIES: Final = 5
"""Attempts for a transaction that the database rolls back because another one was faster."""
FORGET_EVERY: Final = 100
"""After this many operations of a process, rows of which nothing is left are deleted."""
POLL_SECONDS_MIN: Final = 0.02
POLL_SECONDS_MAX: Final = 1.0
CLOSE_SECONDS_MAX: Final = 2 * STALLED_MS / 1_000
"""An operation that has not ended by then has lost its database."""
DIALECTS: Final = {"postgresql": "READ COMMITTED", "sqlite": "SERIALIZABLE"}
"""The databases, and the isolation level of the transactions here, whatever that of the engine."""


class Polls:
    """How long to wait before the next look at a record that another process has: longer and longer."""

    def __init__(self) -> None:
        """Create it, with no look yet."""
        self._looks: dict[str, int] = {}

    def seconds(self, channel: str) -> float:
        """Return the time to the next look."""
        looks = self._looks[channel] = self._looks.get(channel, 0) + 1
        return min(POLL_SECONDS_MAX, POLL_SECONDS_MIN * 2.0 ** min(looks, 10))

    def forget(self, channel: str) -> None:
        """Begin with short times again."""
        self._looks.pop(channel, None)


def checked_engine(given: object, kind: type, who: str) -> str:
    """Return the isolation level to use. Raises InvalidInput for an engine on which records cannot be kept."""
    if not isinstance(given, kind):
        message = f"{who} takes a SQLAlchemy {kind.__name__}, not {type(given).__name__}"
        raise InvalidInput(message)
    engine = cast("Engine | AsyncEngine", given)
    name = engine.dialect.name
    if name not in DIALECTS:
        message = (
            f"{who} keeps records in PostgreSQL or SQLite, and this engine is for {name}: use one of them, or Redis"
        )
        raise InvalidInput(message)
    if name == "sqlite" and not engine.url.database:
        message = f"{who} needs a SQLite file: a database in memory is another one in each thread"
        raise InvalidInput(message)
    try:
        import_module("lupa.lua51")  # the scripts run in it
    except ModuleNotFoundError as error:
        raise InvalidInput(needs(who, "lupa", "sql-records")) from error
    return DIALECTS[name]


class AsyncPollingWakeups(AsyncioWakeups):
    """The waiting lines of this event loop, whose heads look again and again."""

    def _start_anew(self) -> None:
        super()._start_anew()
        self._polls = Polls()

    async def park(self, place: Place, due: float, deadline: float, offer: Offer | None = None) -> bool:
        """Sleep until woken, until the next look, or until the deadline; return whether it is time to try."""
        soon = self._clock.now() + self._polls.seconds(place.line.channel)
        return await super().park(place, min(due, soon), deadline, offer)

    def leave(self, place: Place, due: float, *, in_time: bool = True) -> bool:
        """Leave the line. Return whether the process does not wait any more."""
        is_over = super().leave(place, due, in_time=in_time)
        if is_over:
            self._polls.forget(place.line.channel)
        return is_over


class AsyncSqlRecords(NotPickled):
    """A store of deduplication records in a database, for asyncio: `AsyncDedup(AsyncSqlRecords(engine), "app")`.

    Each operation is one short transaction on a connection of the engine's pool, never in a transaction of the caller.
    Locks, pools and a StoreEffect need Redis. All messages of a key are in one row.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        """Use the user's engine, which stays the user's. Close this before you dispose of the engine.

        Raises InvalidInput for any other database than PostgreSQL and SQLite, and where lupa is not installed.
        """
        self._level = checked_engine(engine, AsyncEngine, type(self).__name__)
        self._engine = engine
        self._process_id = THIS.process_id
        self._count = 0
        self._under_way: list[int] = []  # the process of each operation: a child has those of its parent, too
        self.is_closed = False
        self.clock: Clock = SystemClock()
        self.wakeups = AsyncPollingWakeups(self.clock)

    def __repr__(self) -> str:
        """Show the database, without secrets."""
        return f"{type(self).__name__}({shown(self._engine.url)})"

    async def create(self) -> None:
        """Create the table unless it exists. Safe to run any number of times, also concurrently."""
        await self._within(create)

    async def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:  # noqa: ARG002  # the database's own limits apply
        """Perform one operation in a transaction. Raises InvalidInput for one that only Redis can do."""
        checked_operation(operation)
        for attempt in range(1, TRIES):
            with suppress(TransactionConflict):
                return await self._executed(operation, attempt)
        return await self._executed(operation, TRIES)

    async def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform operations one by one; one answer or failure each."""
        return await async_one_by_one(self, operations, deadline)

    async def close(self) -> None:
        """End renewals and wait for what is under way, so that the user's engine may be disposed of."""
        self.is_closed = True
        for _ in range(int(CLOSE_SECONDS_MAX / POLL_SECONDS_MIN)):
            if THIS.process_id not in self._under_way:
                break
            await asyncio.sleep(POLL_SECONDS_MIN)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _executed(self, operation: Operation[AnswerT], attempt: int) -> AnswerT:
        answer, freed = await self._within(perform, operation, attempt)
        for channel in freed:
            self.wakeups.hear(channel, getattr(channel, "said", ""))
        self._count += 1
        if self._count % FORGET_EVERY == 0:
            with suppress(SegmentedError):  # another process, or the next time
                await self._within(forget_stale)
        return cast("AnswerT", answer)

    async def _within(self, step: Any, *arguments: Any) -> Any:  # noqa: ANN401  # a step, and what it takes
        process_id = THIS.process_id
        self._under_way.append(process_id)  # first: `close` waits for what it sees, and the rest sees that it is closed
        try:
            return await self._in_a_connection(step, *arguments)
        finally:
            self._under_way.remove(process_id)

    async def _in_a_connection(self, step: Any, *arguments: Any) -> Any:  # noqa: ANN401  # a step, and what it takes
        with translated("records in SQL"):  # there may be no connection
            if self.is_closed:
                message = f"{self!r} is closed: make another one with its engine"
                raise StoreUnavailable(message)
            if self._process_id != THIS.process_id:  # the parent's connections are the parent's
                await self._engine.dispose(close=False)
                self._process_id = THIS.process_id
            async with self._engine.connect() as connection:
                await connection.execution_options(isolation_level=self._level)
                return await connection.run_sync(step, *arguments)  # asyncio only
                # threads: return step(connection, *arguments)


# --- For threads: written by `make sync` from the classes above. ---


class PollingWakeups(ThreadWakeups):
    """The waiting lines of this process, whose heads look again and again."""

    def _start_anew(self) -> None:
        super()._start_anew()
        self._polls = Polls()

    def park(self, place: Place, due: float, deadline: float, offer: Offer | None = None) -> bool:
        """Sleep until woken, until the next look, or until the deadline; return whether it is time to try."""
        soon = self._clock.now() + self._polls.seconds(place.line.channel)
        return super().park(place, min(due, soon), deadline, offer)

    def leave(self, place: Place, due: float, *, in_time: bool = True) -> bool:
        """Leave the line. Return whether the process does not wait any more."""
        is_over = super().leave(place, due, in_time=in_time)
        if is_over:
            self._polls.forget(place.line.channel)
        return is_over


class SqlRecords(NotPickled):
    """A store of deduplication records in a database, for threads: `Dedup(SqlRecords(engine), "app")`.

    Each operation is one short transaction on a connection of the engine's pool, never in a transaction of the caller.
    Locks, pools and a StoreEffect need Redis. All messages of a key are in one row.
    """

    def __init__(self, engine: Engine) -> None:
        """Use the user's engine, which stays the user's. Close this before you dispose of the engine.

        Raises InvalidInput for any other database than PostgreSQL and SQLite, and where lupa is not installed.
        """
        self._level = checked_engine(engine, Engine, type(self).__name__)
        self._engine = engine
        self._process_id = THIS.process_id
        self._count = 0
        self._under_way: list[int] = []  # the process of each operation: a child has those of its parent, too
        self.is_closed = False
        self.clock: Clock = SystemClock()
        self.wakeups = PollingWakeups(self.clock)

    def __repr__(self) -> str:
        """Show the database, without secrets."""
        return f"{type(self).__name__}({shown(self._engine.url)})"

    def create(self) -> None:
        """Create the table unless it exists. Safe to run any number of times, also concurrently."""
        self._within(create)

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:  # noqa: ARG002  # the database's own limits apply
        """Perform one operation in a transaction. Raises InvalidInput for one that only Redis can do."""
        checked_operation(operation)
        for attempt in range(1, TRIES):
            with suppress(TransactionConflict):
                return self._executed(operation, attempt)
        return self._executed(operation, TRIES)

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform operations one by one; one answer or failure each."""
        return one_by_one(self, operations, deadline)

    def close(self) -> None:
        """End renewals and wait for what is under way, so that the user's engine may be disposed of."""
        self.is_closed = True
        for _ in range(int(CLOSE_SECONDS_MAX / POLL_SECONDS_MIN)):
            if THIS.process_id not in self._under_way:
                break
            time.sleep(POLL_SECONDS_MIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _executed(self, operation: Operation[AnswerT], attempt: int) -> AnswerT:
        answer, freed = self._within(perform, operation, attempt)
        for channel in freed:
            self.wakeups.hear(channel, getattr(channel, "said", ""))
        self._count += 1
        if self._count % FORGET_EVERY == 0:
            with suppress(SegmentedError):  # another process, or the next time
                self._within(forget_stale)
        return cast("AnswerT", answer)

    def _within(self, step: Any, *arguments: Any) -> Any:  # noqa: ANN401  # a step, and what it takes
        process_id = THIS.process_id
        self._under_way.append(process_id)  # first: `close` waits for what it sees, and the rest sees that it is closed
        try:
            return self._in_a_connection(step, *arguments)
        finally:
            self._under_way.remove(process_id)

    def _in_a_connection(self, step: Any, *arguments: Any) -> Any:  # noqa: ANN401  # a step, and what it takes
        with translated("records in SQL"):  # there may be no connection
            if self.is_closed:
                message = f"{self!r} is closed: make another one with its engine"
                raise StoreUnavailable(message)
            if self._process_id != THIS.process_id:  # the parent's connections are the parent's
                self._engine.dispose(close=False)
                self._process_id = THIS.process_id
            with self._engine.connect() as connection:
                connection.execution_options(isolation_level=self._level)
                return step(connection, *arguments)
