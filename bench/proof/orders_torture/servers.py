"""The embedded servers of a run: stock, broker, and an order database if orders take effect there."""

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

    from bench.proof.orders_torture.options import OrdersOptions

STEP: Final = "bench.proof.orders_torture.instrumentation:work"
SKU: Final = "torture"
SEGMENTS: Final = 16
ENVELOPE_MAX: Final = 20
"""Orders per message: few, so that a kill hits one of many messages."""
OWN_CONNECTIONS: Final = 8
CONNECTIONS_A_WORKER: Final = 4
"""A killed worker's connection lasts until the server detects it."""


@dataclass(frozen=True, slots=True)
class Servers:
    """The addresses of the servers."""

    store: RedisStore
    broker: str
    pool: Pool
    engine: Engine | None
    """Engine of the order database, if orders take effect there."""
    environment: dict[str, str]
    """The complete environment of the processes."""


@contextmanager
def servers(options: OrdersOptions, folder: Path) -> Iterator[Servers]:
    """Start the servers and open the pool; everything is removed at the end."""
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
            database = f"sqlite:///{folder / 'unused.sqlite'}"  # workers require one at startup
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
        "AUDIT_EVERY": "0",  # the run has its own checker, and an audit of a million orders would disturb it
    }
    others = {name: value for name, value in os.environ.items() if not name.startswith("SEGMENTED_")}
    quiet = {"PYTHONWARNINGS": "ignore:You"}  # 're running the worker with superuser privileges, as a container does
    return {**others, **quiet, **{f"SEGMENTED_{name}": value for name, value in ours.items()}}
