"""Puts the named points around stores, databases and Celery from outside; production code does not contain them.

For processes under test: it changes classes of the libraries for as long as the process lives.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import kombu
import kombu.message
from celery.signals import worker_ready
from kombu.transport import redis as redis_transport
from sqlalchemy import Engine, Pool, event
from sqlalchemy.engine.default import DefaultDialect

from segmented.orders.postgresql import FAILED
from segmented.stores.redis import AsyncRedisStore, RedisStore
from segmented.testing.control import ACK, COMMIT, POPPED, PUBLISH, Control

BEGUN: Final = "segmented_begun"
"""Key in a connection's info: BEGIN opened a transaction, so that its statements do not commit on their own."""
BEGINS: Final = frozenset({"BEGIN", "START"})
WRITES: Final = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE", "WITH", "CALL"})


def put_points(control: Control) -> None:
    """Put all points in place. Call it once, before Celery starts."""
    _around_operations(control)
    _around_commits(control)
    _around_messages(control)
    worker_ready.connect(lambda **_: control.is_ready(), weak=False)


@contextmanager
def _around(control: Control, *steps: str) -> Iterator[None]:
    """Pass the points before these steps and, unless the block fails, those after them."""
    for step in steps:
        control.reach(f"before:{step}")
    yield
    for step in steps:
        control.reach(f"after:{step}")


# --- stores ---


def _around_operations(control: Control) -> None:
    for name in ("execute", "execute_many"):
        _replace(RedisStore, name, lambda real: _executing_operations(real, control))
        _replace(AsyncRedisStore, name, lambda real: _executing_async(real, control))


def _names(asked: object) -> list[str]:
    return [type(one).__name__ for one in (asked if isinstance(asked, list | tuple) else [asked])]


def _executing_operations(real: Callable[..., Any], control: Control) -> Callable[..., Any]:
    @functools.wraps(real)
    def execute(store: object, asked: object, **options: Any) -> Any:  # noqa: ANN401  # as the wrapped one
        with _around(control, *_names(asked)):
            return real(store, asked, **options)

    return execute


def _executing_async(real: Callable[..., Any], control: Control) -> Callable[..., Any]:
    @functools.wraps(real)
    async def execute(store: object, asked: object, **options: Any) -> Any:  # noqa: ANN401  # as the wrapped one
        for name in _names(asked):
            await control.areach(f"before:{name}")
        answer = await real(store, asked, **options)
        for name in _names(asked):
            await control.areach(f"after:{name}")
        return answer

    return execute


# --- databases ---


def _around_commits(control: Control) -> None:
    """Find each COMMIT, and each statement that writes in autocommit, which is its own transaction."""

    def before(connection: Any, _cursor: object, statement: str, _values: object, context: Any, *_: object) -> None:  # noqa: ANN401  # SQLAlchemy's
        is_sent = FAILED not in context.execution_options  # the driver has run the statement itself, and it failed
        if is_sent and _commits(connection.connection, statement):
            control.reach(f"before:{COMMIT}")

    def after(connection: Any, _cursor: object, statement: str, *_: object) -> None:  # noqa: ANN401  # SQLAlchemy's
        word, notes = _first_word(statement), connection.connection.info
        if _commits(connection.connection, statement):
            control.reach(f"after:{COMMIT}")
        if word in BEGINS:
            notes[BEGUN] = True
        elif word in {"COMMIT", "ROLLBACK"}:
            notes.pop(BEGUN, None)

    event.listen(Engine, "before_cursor_execute", before)
    event.listen(Engine, "after_cursor_execute", after)
    _replace(DefaultDialect, "do_commit", lambda real: _committing(real, control))
    event.listen(Engine, "rollback", lambda connection: connection.connection.info.pop(BEGUN, None))
    event.listen(Pool, "reset", lambda _driver, record, _state: record.info.pop(BEGUN, None))
    with suppress(ImportError):  # an extra: without it there is no PostgreSQL
        _replace(importlib.import_module("psycopg").Connection, "execute", lambda real: _executing(real, control))


def _executing(real: Callable[..., Any], control: Control) -> Callable[..., Any]:
    """Find the confirm of an order, which goes to psycopg itself; SQLAlchemy's cursors call another method."""

    @functools.wraps(real)
    def execute(driver: Any, query: Any, *parts: Any, **options: Any) -> Any:  # noqa: ANN401  # as the wrapped one
        is_committing = driver.autocommit and isinstance(query, str) and _first_word(query) in WRITES
        with _around(control, *[COMMIT] * is_committing):
            return real(driver, query, *parts, **options)

    return execute


def _committing(real: Callable[..., Any], control: Control) -> Callable[..., Any]:
    @functools.wraps(real)
    def do_commit(dialect: object, connection: Any) -> None:  # noqa: ANN401  # SQLAlchemy's
        is_empty = _is_autocommit(connection) and BEGUN not in connection.info
        with _around(control, *[COMMIT] * (not is_empty)):
            real(dialect, connection)
            connection.info.pop(BEGUN, None)

    return do_commit


def _commits(connection: Any, statement: str) -> bool:  # noqa: ANN401  # SQLAlchemy's
    """Return whether the statement commits a change."""
    word = _first_word(statement)
    return word == COMMIT.upper() or (word in WRITES and BEGUN not in connection.info and _is_autocommit(connection))


def _first_word(statement: str) -> str:
    words = statement.split(None, 1)
    return words[0].rstrip(";").upper() if words else ""


def _is_autocommit(connection: Any) -> bool:  # noqa: ANN401  # every driver's
    """Return whether the connection is in autocommit mode, by the attribute of each driver."""
    driver = connection.dbapi_connection
    if hasattr(driver, "get_autocommit"):
        return bool(driver.get_autocommit())
    said = getattr(driver, "autocommit", None)
    if isinstance(said, bool):
        return said
    return getattr(driver, "isolation_level", "") is None  # sqlite3


# --- messages ---


def _around_messages(control: Control) -> None:
    def acknowledging(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def ack(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # as kombu's own
            with _around(control, ACK):
                return real(*arguments, **options)

        return ack

    def publishing(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def publish(producer: object, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # as kombu's own
            is_task = "task" in (options.get("headers") or {})  # not an event, or an answer to remote control
            with _around(control, *[PUBLISH] * is_task):
                return real(producer, *arguments, **options)

        return publish

    def popping(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def append(*arguments: Any) -> Any:  # noqa: ANN401  # as kombu's own
            control.reach(POPPED)
            return real(*arguments)

        return append

    _replace(kombu.message.Message, "ack", acknowledging)
    _replace(kombu.Producer, "publish", publishing)
    _replace(redis_transport.QoS, "append", popping)


def _replace(owner: type, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    setattr(owner, name, wrap(getattr(owner, name)))
