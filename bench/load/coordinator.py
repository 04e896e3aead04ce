"""Coordinates a sale: opens the stock, adds up the sellers' figures, and checks the sale at the end.

The coordinator is in Locust's master, or its only process. It starts servers if none are named, and ends them.
"""

from __future__ import annotations

import os
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from bench.conditions import CpuMeter
from bench.engine.checker import broken_promises, check
from bench.load.plan import ConnectedStrategy, Plan, connect_strategy
from bench.load.tally import Tally, merged, too_late
from segmented.errors import InvalidInput, StoreUnavailable
from segmented.servers import PostgresServer, ValkeyServer
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    import redis

    from bench.conditions import CpuReading
    from bench.engine.cell import Cell
    from bench.engine.record import Checker

URL: Final = "SEGMENTED_URL"
DATABASE: Final = "SEGMENTED_DATABASE"
SPARE_CONNECTIONS: Final = 40
"""Spare connections of an embedded PostgreSQL: each seller has a few beyond one per buyer."""


class Servers:
    """The servers that the environment names, or embedded ones. They last for all sales of a Locust process."""

    def __init__(self) -> None:
        """Read the environment; start nothing yet."""
        self._stack = ExitStack()
        self._url = os.environ.get(URL) or None
        self._database = os.environ.get(DATABASE) or None

    def check(self) -> None:
        """Check the Redis that the environment names. Raises InvalidInput if it cannot be used."""
        if self._url is None:
            return
        try:
            with RedisStore.from_url(self._url):
                pass
        except (InvalidInput, StoreUnavailable) as error:
            raise InvalidInput(f"{URL}: {error}") from error

    def url(self) -> str:
        """Return the URL of Redis."""
        if self._url is None:
            self._url = self._stack.enter_context(ValkeyServer.start()).url
        return self._url

    def database(self, buyers: int) -> str:
        """Return the URL of the order database."""
        if self._database is None:
            connections = 2 * buyers + SPARE_CONNECTIONS
            self._database = self._stack.enter_context(PostgresServer.start(max_connections=connections)).url
        return self._database

    def stop(self) -> None:
        """Stop the embedded servers."""
        self._stack.close()


@dataclass(slots=True)
class Result:
    """The result of a sale."""

    plan: Plan
    tally: Tally
    checker: Checker
    broken: tuple[str, ...]
    """Broken guarantees, one sentence each."""
    void: tuple[str, ...]
    """Why there are no figures although every guarantee held."""
    cpu_s: dict[str, float | None]
    """CPU seconds of the sale: of the generator, of Redis, and of the order database; None if it was not seen."""

    @property
    def orders_per_s(self) -> float | None:
        """Return the rate of orders that hold stock; None if a guarantee was broken or the sale is void."""
        return None if self.broken or self.void else self.tally.goodput


@dataclass(slots=True)
class SaleCoordinator:
    """One sale, as the coordinating process sees it."""

    plan: Plan
    connected: ConnectedStrategy
    opened: tuple[int, ...]
    """Initial units by segment."""
    meter: CpuMeter
    before: CpuReading
    """CPU seconds when the sale was opened."""
    tallies: dict[str, Tally] = field(default_factory=dict)
    """The latest figures of each seller."""
    call_logs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Call logs of the sellers that have ended."""
    over: set[str] = field(default_factory=set)
    """Sellers whose arrivals have all been handled."""
    is_ending: bool = False
    """Whether the test is stopping."""
    left_at_last: tuple[int, ...] | None = None
    """Free units by segment when the sale was checked; its keys are removed after that."""
    result: Result | None = None

    @classmethod
    def open(cls, cell: Cell, servers: Servers, *, options: Any, shares: tuple[str, ...]) -> SaleCoordinator:  # noqa: ANN401  # Locust's
        """Open the stock for these sellers. Raises SegmentedError."""
        from bench.strategies import STRATEGIES  # noqa: PLC0415  # names are checked before anything is started
        from bench.strategies.own import OWN  # noqa: PLC0415  # as above

        needs_database = cell.critical_section().commits or STRATEGIES[cell.strategy].needs_database
        plan = Plan(
            cell=cell,
            own=OWN.get(cell.strategy),
            sku=f"locust-{uuid.uuid4().hex[:12]}",
            stock=options.stock,
            seconds=options.seconds,
            warm_up=options.warm_up,
            seed=options.seed,
            late_max=options.late_max,
            url=servers.url(),
            database=servers.database(cell.buyers) if needs_database else None,
            shares=shares,
        )
        connected = connect_strategy(plan, buyers=cell.buyers)
        connected.strategy.open(plan.sku, plan.stock)
        meter = CpuMeter(cast("redis.Redis", connected.store.client), connected.engine)
        return cls(plan, connected, connected.strategy.free_by_segment(), meter, meter.read())

    def tally(self) -> Tally:
        """Return the figures of all sellers so far."""
        found = Tally()
        for one in self.tallies.values():
            found.add(one)
        return found

    def left(self) -> tuple[int, ...]:
        """Return free units by segment: the current ones, or those at the end of a checked sale."""
        return self.connected.strategy.free_by_segment() if self.left_at_last is None else self.left_at_last

    def judge(self) -> Result:
        """Check the sale after all sellers have ended; remove its keys and rows."""
        after, before = self.meter.read(), self.before
        servers = {
            "redis": after.redis - before.redis,
            "database": None if after.database is None or before.database is None else after.database - before.database,
        }
        strategy, quantity = self.connected.strategy, self.plan.cell.quantity
        recorder = merged(list(self.call_logs.values()))
        found = check(
            recorder,
            strategy.judge(recorder.judged),
            opened=self.plan.stock,
            stocked=self.plan.stock,
            quantity=quantity,
            cancelled=0,
            unfinished=sum(one["unfinished"] for one in self.call_logs.values()),
        )
        failed = sum(one["failure_count"] + one["unfinished"] for one in self.call_logs.values())
        is_open = self.plan.cell.loop == "open"
        broken = broken_promises(found, recorder.failures, failed=0 if is_open else failed)
        missing = [share for share in self.plan.shares if share not in self.call_logs]
        if missing:
            broken += (f"processes that never reported their sales: {', '.join(missing)}",)
        tally = self.tally()
        void = too_late(tally, is_open=is_open, late_max=self.plan.late_max)
        self.result = Result(self.plan, tally, found, broken, void, {"generator": tally.cpu_s, **servers})
        self.left_at_last = strategy.free_by_segment()
        strategy.clear()
        return self.result

    def close(self) -> None:
        """Close the connections."""
        self.connected.close()
