"""One store, one gate and one pool a sku for each process, made when the first task asks: after any fork."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from segmented.errors import DatabaseUnavailable, InvalidInput, StoreUnavailable
from segmented.orders import Gate, connect
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from workers.app import settings

if TYPE_CHECKING:
    from sqlalchemy import Engine


class Connections:
    """What the tasks of one process share; safe for threads."""

    def __init__(self) -> None:
        """Connect. Raises StoreUnavailable or DatabaseUnavailable: a server that is not there now may be later."""
        try:
            self._store = RedisStore.from_url(settings.url.get_secret_value())
        except InvalidInput as error:
            raise StoreUnavailable(str(error)) from error
        try:
            self._engine: Engine = connect(settings.database.get_secret_value(), pool_size=settings.concurrency)
        except InvalidInput as error:
            self._store.close()
            raise DatabaseUnavailable(str(error)) from error
        self.gate = Gate(self._engine)
        self._pools: dict[str, Pool] = {}

    def pool(self, sku: str) -> Pool:
        """Return the pool of a sku."""
        pool = self._pools.get(sku)
        if pool is None:
            pool = Pool(self._store, sku, ttl=settings.segment_ttl, hold=settings.hold)
            self._pools[sku] = pool
        return pool

    def close(self) -> None:
        """Give up every connection."""
        self._store.close()
        self.gate.close()


_guard = threading.Lock()
_made: list[Connections] = []


def connections() -> Connections:
    """Return this process's connections, made by the first call."""
    with _guard:
        if not _made:
            _made.append(Connections())
        return _made[0]


def disconnect() -> None:
    """Close what `connections` made, if it did."""
    with _guard:
        while _made:
            _made.pop().close()
