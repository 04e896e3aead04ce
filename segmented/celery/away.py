"""Is a database away, so that another time may cure it, or does it refuse us? Asked of what a first contact raised."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from segmented.errors import InvalidInput

ANSWERED: Final = "FATAL"
"""How a PostgreSQL server begins a refusal; what the driver says by itself has no such word."""
MISSAID: Final = re.compile(r"invalid (connection option|\w+ value|port number)")
"""What the driver says of an address before it has asked any server."""
PASSING: Final = (
    *("starting up", "shutting down", "not yet accepting", "in recovery"),
    *("too many", "connection slots", "database is locked"),
)


def is_database_away(error: InvalidInput) -> bool:
    """Did no server answer, or one that takes no connections for the moment?"""
    cause = error.__cause__
    if not isinstance(cause, DBAPIError) or cause.orig is None:
        return False
    said = str(cause.orig)
    is_passing = any(word in said for word in PASSING)
    is_unanswered = type(cause.orig).__module__.startswith("psycopg") and ANSWERED not in said
    return is_passing or (is_unanswered and not MISSAID.search(said))
