"""Is a server away, so that another time may cure it, or does it refuse us? Asked of what a first contact raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from redis.exceptions import (
    AuthenticationError,
    ClusterDownError,
    ConnectionError as RedisConnectionError,
    RedisClusterException,
    RedisError,
    TimeoutError as RedisTimeoutError,
    TryAgainError,
)
from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from segmented.errors import InvalidInput

AWAY: Final = (RedisConnectionError, RedisTimeoutError, ClusterDownError, TryAgainError, OSError)
ANSWERED: Final = "FATAL"
"""How a PostgreSQL server begins a refusal; what the driver says by itself has no such word."""
PASSING: Final = (
    *("starting up", "shutting down", "not yet accepting", "in recovery"),
    *("too many", "connection slots", "database is locked"),
)


def is_store_away(error: InvalidInput) -> bool:
    """Did no server answer, or one that has no data yet? One that refuses us, or is of the wrong kind, is not away."""
    cause: BaseException | None = error.__cause__
    if isinstance(cause, RedisClusterException) or type(cause) is RedisConnectionError:
        inner = cause.__cause__
        cause = inner if isinstance(inner, RedisError | OSError) else cause  # what a client of several servers wraps
    if isinstance(cause, RedisClusterException):
        return True  # none of the nodes was reached
    is_refusal = isinstance(cause, AuthenticationError) or "refused its password" in str(error)
    return isinstance(cause, AWAY) and not is_refusal


def is_database_away(error: InvalidInput) -> bool:
    """Did no server answer, or one that takes no connections for the moment?"""
    cause = error.__cause__
    if not isinstance(cause, DBAPIError) or cause.orig is None:
        return False
    said = str(cause.orig)
    is_passing = any(word in said for word in PASSING)
    return is_passing or (type(cause.orig).__module__.startswith("psycopg") and ANSWERED not in said)
