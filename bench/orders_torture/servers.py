"""The servers of a run, all its own: stock, broker, and an order database where the effect is there."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from segmented.orders import Gate, connect, open_gated
from segmented.servers import PostgresServer, ValkeyServer
from segmented.stock import Pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine

    from bench.orders_torture.options import OrdersOptions

STEP: Final = "bench.orders_torture.witness:work"
SKU: Final = "torture"
SEGMENTS: Final = 16
ENVELOPE_MAX: Final = 20
"""Orders in a message: so few that a kill meets one of many messages, not the only one."""
OWN_CONNECTIONS: Final = 8
CONNECTIONS_A_WORKER: Final = 4
"""A killed worker's connection lasts until the server sees that it is gone."""


@dataclass(frozen=True, slots=True)
class Servers:
    """Where everything is."""

    store: RedisStore
    broker: str
    pool: Pool
    engine: Engine | None
    """The order database's, if the effect is there."""
    environment: dict[str, str]
    """What processes are told, the whole of it."""


@contextmanager
def servers(options: OrdersOptions, folder: Path) -> Iterator[Servers]:
    """Start the servers, and open the pool; all of it is gone at the end."""
    with ExitStack() as stack:
        stock = stack.enter_context(ValkeyServer.start())
        broker = stack.enter_context(ValkeyServer.start())
        store = stack.enter_context(RedisStore.from_url(stock.url))
        pool = Pool(store, SKU)
        engine: Engine | None = None
        if options.effect == "postgresql":
            connections = OWN_CONNECTIONS + CONNECTIONS_A_WORKER * options.workers
            database = stack.enter_context(PostgresServer.start(max_connections=connections)).url
            engine = connect(database, pool_size=1)
            gate = stack.enter_context(Gate(engine))
            gate.create()
            open_gated(pool, gate, stock=options.stock(), segments=SEGMENTS)
        else:
            database = f"sqlite:///{folder / 'unused.sqlite'}"  # workers look for one at their start
            pool.open(stock=options.stock(), segments=SEGMENTS)
        yield Servers(store, broker.url, pool, engine, _environment(stock.url, broker.url, database))


def _environment(url: str, broker: str, database: str) -> dict[str, str]:
    ours = {
        "URL": url,
        "BROKER": broker,
        "DATABASE": database,
        "STEP": STEP,
        "CONCURRENCY": "1",
        "ENVELOPE_MAX": str(ENVELOPE_MAX),
        "AUDIT_EVERY": "0",  # the count is our own, and an audit of a million orders would be in its way
    }
    others = {name: value for name, value in os.environ.items() if not name.startswith("SEGMENTED_")}
    quiet = {"PYTHONWARNINGS": "ignore:You"}  # 're running the worker with superuser privileges, as a container does
    return {**others, **quiet, **{f"SEGMENTED_{name}": value for name, value in ours.items()}}
