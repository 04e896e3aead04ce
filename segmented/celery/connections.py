"""One store, one gate and one pool per sku for each process: opened at its start, closed at its end, in no fork.

A first contact that fails because a server is away is retried; one that the server refuses is not.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from celery.signals import worker_process_shutdown, worker_shutdown

from segmented.celery.settings import settings
from segmented.errors import DatabaseUnavailable, InvalidInput, StoreUnavailable
from segmented.orders import Gate, connect
from segmented.process import THIS, Guard
from segmented.stock import pool_of
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.celery.settings import WorkerSettings
    from segmented.stock import Pool

POOLS_MAX: Final = 1_000
"""Number of skus whose pools are cached; beyond it, the least recently used pool is created again."""
WAIT_SECONDS: Final = 60.0
"""For servers that start together with the workers."""
PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 2.0
log = logging.getLogger(__name__)


class Connections:
    """The connections that the tasks of one process share; thread-safe."""

    def __init__(self, said: WorkerSettings, *, pool_size: int) -> None:
        """Connect, with at most `pool_size` connections to the database.

        Raises InvalidInput for a server that refuses the connection or is unsuitable, StoreUnavailable or
        DatabaseUnavailable for one that is away now.
        """
        self.process_id = THIS.process_id
        self._said = said
        self.store = RedisStore.from_url(said.url.get_secret_value())
        try:
            self.store.require_pools()
            self.engine = connect(said.database.get_secret_value(), pool_size=pool_size)
            self.gate = Gate(self.engine)
        except BaseException:
            self.store.close()
            raise
        self._pools: OrderedDict[str, Pool] = OrderedDict()
        self._pools_guard = Guard()

    def pool(self, sku: str) -> Pool:
        """Return the pool of a sku, or the shard that a message names. Raises InvalidInput for any other name."""
        with self._pools_guard.lock:
            pool = self._pools.get(sku)
            if pool is None:
                pool = self._pools[sku] = pool_of(self.store, sku, ttl=self._said.segment_ttl, hold=self._said.hold)
                if len(self._pools) > POOLS_MAX:
                    self._pools.popitem(last=False)
            self._pools.move_to_end(sku)
            return pool

    def close(self) -> None:
        """Close every connection."""
        self.store.close()
        self.gate.close()


_guard = Guard()
_made: list[Connections] = []
_abandoned: list[Connections] = []
"""Kept alive, so that no destructor ends the parent's sessions."""


def connections() -> Connections:
    """Return this process's connections; if there are none, they are opened now, once.

    Raises StoreUnavailable or DatabaseUnavailable for any error, since a server's problem may be solved later.
    """
    for made in _made[:]:  # a copy, since another thread may disconnect; at most one
        if made.process_id == THIS.process_id:
            return made
    try:
        return open_connections(pool_size=settings().concurrency)
    except InvalidInput as error:
        raise StoreUnavailable(str(error)) from error


def open_connections(*, pool_size: int) -> Connections:
    """Return this process's connections, opened by the first call. Raises the errors of `Connections`."""
    with _guard.lock:
        if _made and _made[0].process_id != THIS.process_id:
            _abandoned.append(_made.pop())
            _abandoned[-1].engine.dispose(close=False)  # its sockets are the parent's: nothing may be sent on them
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
    """Open the connections, waiting up to `seconds` for servers that are not there yet.

    Raises InvalidInput at once for a server that refuses the connection, StoreUnavailable or DatabaseUnavailable at the
    end.
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


@worker_process_shutdown.connect
@worker_shutdown.connect
def disconnect(**_: object) -> None:
    """Close this process's connections, if it opened any: a pool's child at its own end, another worker at its end."""
    with _guard.lock:
        while _made:
            made = _made.pop()
            if made.process_id == THIS.process_id:
                made.close()
