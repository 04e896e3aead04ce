"""One store, one gate and a pool a sku for each process: opened at its start, closed at its end, shared in no fork.

A first contact that fails because the database is away is tried again; one that the database refuses is not.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import DBAPIError

from segmented.celery.current import settings
from segmented.errors import DatabaseUnavailable, InvalidInput, StoreUnavailable
from segmented.orders import Gate, connect
from segmented.stock import pool_of
from segmented.stores.redis import RedisStore
from segmented.stores.redis.edge import is_store_away

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.celery.settings import WorkerSettings
    from segmented.stock import Pool

POOLS_MAX: Final = 1_000
"""Skus whose pools are kept; of more, the one that was not asked for the longest is made anew."""
WAIT_SECONDS: Final = 60.0
"""For servers that start together with the workers."""
PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 2.0
log = logging.getLogger(__name__)
ANSWERED: Final = "FATAL"
"""How a PostgreSQL server begins a refusal; what the driver says by itself has no such word."""
MISSAID: Final = re.compile(r"invalid (connection option|\w+ value|port number)")
"""What the driver says of an address before it has asked any server."""
PASSING: Final = (
    *("starting up", "shutting down", "not yet accepting", "in recovery"),
    *("too many", "connection slots", "database is locked"),
)


class Connections:
    """What the tasks of one process share; safe for threads."""

    def __init__(self, said: WorkerSettings, *, pool_size: int) -> None:
        """Connect, with at most `pool_size` connections to the database.

        Raises InvalidInput for a server that refuses us or is not fit, StoreUnavailable or DatabaseUnavailable for one
        that is not there now.
        """
        self.process_id = os.getpid()
        self._said = said
        try:
            self.store = RedisStore.from_url(said.url.get_secret_value())
        except InvalidInput as error:
            if is_store_away(error):
                raise StoreUnavailable(str(error)) from error
            raise
        try:
            self.engine = connect(said.database.get_secret_value(), pool_size=pool_size)
        except BaseException as error:
            self.store.close()
            if isinstance(error, InvalidInput) and is_database_away(error):
                raise DatabaseUnavailable(str(error)) from error
            raise
        self.gate = Gate(self.engine)
        self._pools: OrderedDict[str, Pool] = OrderedDict()
        self._pools_guard = threading.Lock()

    def pool(self, sku: str) -> Pool:
        """Return the pool of a sku, or the shard that a message names. Raises InvalidInput for what names neither."""
        with self._pools_guard:
            pool = self._pools.get(sku)
            if pool is None:
                pool = self._pools[sku] = pool_of(self.store, sku, ttl=self._said.segment_ttl, hold=self._said.hold)
                if len(self._pools) > POOLS_MAX:
                    self._pools.popitem(last=False)
            self._pools.move_to_end(sku)
            return pool

    def close(self) -> None:
        """Give up every connection."""
        self.store.close()
        self.gate.close()

    def abandon(self) -> None:
        """Let go of them after a fork: the sockets are the parent's, and nothing may be said on them."""
        self.engine.dispose(close=False)


_guard = threading.Lock()
_made: list[Connections] = []
_abandoned: list[Connections] = []
"""Kept, so that no destructor says goodbye in the parent's name."""


def connections() -> Connections:
    """Return this process's connections. Where there are none they are made now, once.

    Raises StoreUnavailable or DatabaseUnavailable: whatever is wrong with a server now may be put right later.
    """
    try:
        return open_connections(pool_size=settings().concurrency)
    except InvalidInput as error:
        raise StoreUnavailable(str(error)) from error


def open_connections(*, pool_size: int) -> Connections:
    """Return this process's connections, made by the first call. Raises as `Connections` does."""
    with _guard:
        if _made and _made[0].process_id != os.getpid():
            _abandoned.append(_made.pop())
            _abandoned[-1].abandon()
        if not _made:
            _made.append(Connections(settings(), pool_size=pool_size))
        return _made[0]


def open_when_there(
    *,
    pool_size: int,
    seconds: float = WAIT_SECONDS,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Connections:
    """Open the connections; servers that are not there yet are waited for, `seconds` at most.

    Raises InvalidInput at once for a server that refuses us, StoreUnavailable or DatabaseUnavailable at the end.
    """
    deadline = now() + seconds
    pause = PAUSE_SECONDS
    while True:
        try:
            return open_connections(pool_size=pool_size)
        except (StoreUnavailable, DatabaseUnavailable) as error:
            if now() + pause > deadline:
                raise
            if pause == PAUSE_SECONDS:
                log.warning("waiting up to %g s for a server: %s", seconds, error)
        sleep(pause)
        pause = min(2 * pause, PAUSE_SECONDS_MAX)


def disconnect() -> None:
    """Close what this process opened, if it did."""
    with _guard:
        while _made:
            made = _made.pop()
            if made.process_id == os.getpid():
                made.close()


def is_database_away(error: InvalidInput) -> bool:
    """Did no server answer, or one that takes no connections for the moment?"""
    cause = error.__cause__
    if not isinstance(cause, DBAPIError) or cause.orig is None:
        return False
    said = str(cause.orig)
    is_passing = any(word in said for word in PASSING)
    is_unanswered = type(cause.orig).__module__.startswith("psycopg") and ANSWERED not in said
    return is_passing or (is_unanswered and not MISSAID.search(said))
