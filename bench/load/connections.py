"""Connects a strategy to the servers of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from bench.granularity.assignment import SPARE_CONNECTIONS
from bench.strategies import STRATEGIES
from bench.strategies.base import StrategyContext
from segmented.orders import Gate, connect
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from bench.load.plan import Plan
    from bench.strategies.base import Strategy


@dataclass(frozen=True, slots=True)
class ConnectedStrategy:
    """A strategy with its connections."""

    strategy: Strategy
    store: RedisStore
    engine: Engine | None

    def close(self) -> None:
        """Close all connections."""
        self.strategy.close()
        self.store.close()
        if self.engine is not None:
            self.engine.dispose()


def connect_strategy(plan: Plan, *, buyers: int) -> ConnectedStrategy:
    """Connect a strategy, with connections for that many buyers. It has not opened or joined a sale yet."""
    connections = buyers + SPARE_CONNECTIONS
    query = urlsplit(plan.url).query
    url = plan.url
    if "max_connections" not in parse_qs(query):
        url += f"{'&' if query else '?'}max_connections={connections}"
    store = RedisStore.from_url(url)
    engine = None if plan.database is None else connect(plan.database, pool_size=connections)
    if engine is not None:
        Gate(engine).create()
    cell = plan.cell
    context = StrategyContext(
        store=store,
        engine=engine,
        segments=cell.segments,
        buyers=buyers,
        section=cell.critical_section(),
        batch=cell.batch,
        url=url,
    )
    return ConnectedStrategy(STRATEGIES[cell.strategy](context), store, engine)
