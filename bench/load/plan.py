"""The plan of a sale under Locust, made from the command line by the coordinator and sent to the workers.

The coordinator is in Locust's master, or its only process. It starts servers if none are named, opens the stock, adds
up the sellers' figures, and checks the sale at the end.
"""

from __future__ import annotations

import math
import os
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import ValidationError

from bench import sizing
from bench.conditions import CpuMeter
from bench.engine.cell import SPARE_CONNECTIONS, Cell, Frozen
from bench.engine.checker import broken_promises, check
from bench.load.tally import LATE_MAX, Tally, merged, too_late
from bench.sections import KINDS
from bench.strategies import STRATEGIES
from bench.strategies.base import StrategyContext, with_connections
from bench.strategies.own import OWN, OwnStrategy, add_strategy
from segmented.errors import InvalidInput, StoreUnavailable
from segmented.orders import Gate, connect
from segmented.servers import PostgresServer, ValkeyServer
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    import redis
    from locust.argument_parser import LocustArgumentParser
    from sqlalchemy import Engine

    from bench.conditions import CpuReading
    from bench.engine.record import Checker
    from bench.strategies.base import Strategy

SECONDS_MAX: Final = 3_600.0
"""Maximum length of a sale: every call is kept until the sale is checked."""
OWN_NAMES: Final[dict[str, str]] = {}
"""Names of strategies in files, by `FILE:Class` as the command line has it."""
SEEDS_A_SALE: Final = 10_000


class Plan(Frozen):
    """A sale and its participants."""

    cell: Cell
    own: OwnStrategy | None = None
    """The file of the strategy, if it is not one of the bench."""
    sku: str
    stock: int
    seconds: float
    """Measured seconds, after the warm-up."""
    warm_up: float
    seed: int
    late_max: float = LATE_MAX
    """Maximum lateness of the load generator, as a share; above it the sale has no figures."""
    url: str
    database: str | None
    shares: tuple[str, ...]
    """Locust's ids of the processes that sell."""

    @property
    def share(self) -> Cell:
        """The cell of each process: its share of the arrival rate, and of the orders under way."""
        cell, count = self.cell, len(self.shares)
        rate = None if cell.offered_per_s is None else cell.offered_per_s / count
        return cell.model_copy(update={"offered_per_s": rate, "buyers": max(1, math.ceil(cell.buyers / count))})

    def seed_of(self, share: int) -> int:
        """Return the seed of a share; each has a different one."""
        return self.seed * SEEDS_A_SALE + share

    @property
    def drain(self) -> float:
        """Seconds for orders under way to end."""
        return sizing.drain(self.cell.buyers, self.cell.hold_ms / 1_000)


def add_options(parser: LocustArgumentParser, *, is_open: bool) -> None:
    """Add the options of a sale; Locust's page shows them as fields, but not the name of a file."""
    add = parser.add_argument
    add("--strategy", default="segment-locks", help=f"one of: {', '.join(STRATEGIES)}; or FILE:CLASS")
    add("--segments", type=int, default=16, help="segments of the stock, K; 1 for a strategy without any")
    add("--batch", type=int, default=1, help="orders a call")
    add("--section", default="sleep", help=f"the critical section: {', '.join(KINDS)}")
    add("--hold", type=float, default=20.0, help="milliseconds of the critical section")
    add("--seconds", type=float, default=10.0, help="seconds that count, after the warm-up")
    add("--warm-up", type=float, default=1.0, help="seconds that do not count")
    add("--stock", type=int, default=1_000_000, help="units for sale")
    add("--seed", type=int, default=1, help="the same seed, the same arrivals" if is_open else "kept in the results")
    add("--late-max", type=float, default=LATE_MAX, help="lateness of the generator, as a share, that voids a sale")
    add("--sale-json", default="", include_in_web_ui=False, help="file for the results, as JSON; - is standard output")
    if is_open:
        add("--rate", type=float, default=200.0, help="orders that arrive a second (of a spike: at its height)")
        add("--arrivals", default="poisson", help="poisson, or spike: a flash sale")
        add("--under-way", type=int, default=256, help="orders under way at most; more are shed and counted")


def add_own(spec: str) -> None:
    """Add the strategy that the command line names as `FILE:Class`; the page can name no other file.

    Raises InvalidInput.
    """
    if ":" in spec:
        OWN_NAMES[spec] = add_strategy(spec)


def cell_of(options: Any, *, is_open: bool) -> Cell:  # noqa: ANN401  # a namespace that Locust fills
    """Return the cell that the options name. Raises InvalidInput."""
    name = OWN_NAMES.get(options.strategy, options.strategy)
    if name not in STRATEGIES:
        raise InvalidInput(f"--strategy {name}: unknown strategy; known are: {', '.join(STRATEGIES)}")
    strategy = STRATEGIES[name]
    if not (0 < options.seconds <= SECONDS_MAX and 0 <= options.warm_up <= SECONDS_MAX):
        raise InvalidInput(
            f"--seconds {options.seconds:g} and --warm-up {options.warm_up:g} must be above 0 and from 0, and at most "
            f"{SECONDS_MAX:g}"
        )
    if not options.late_max >= 0:
        raise InvalidInput(f"--late-max {options.late_max:g} must not be negative")
    if options.seed < 0:
        raise InvalidInput(f"--seed {options.seed} must not be negative")
    given: dict[str, object] = {
        "strategy": name,
        # Locust passes the default of --segments even for a strategy without segments.
        "segments": options.segments if strategy.has_segments else 1,
        "batch": options.batch,
        "section": options.section,
        "hold_ms": options.hold,
        "stock": options.stock,
        "buyers": options.under_way if is_open else options.num_users or 1,
        "loop": "open" if is_open else "closed",
    }
    if is_open:
        given |= {"offered_per_s": options.rate, "arrivals": options.arrivals}
    if options.batch > 1 and not strategy.has_batches:
        raise InvalidInput(f"--batch {options.batch}: {name} sells one order after the other")
    try:
        return Cell.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        said = first["msg"].removeprefix("Value error, ")
        value = f" {given[name]}" if name in given else ""
        option = "-u" if name == "buyers" and not is_open else _OPTIONS.get(name, f"--{name}")
        raise InvalidInput(f"{option}{value}: {said}" if name else said) from error


_OPTIONS: Final = {"hold_ms": "--hold", "offered_per_s": "--rate", "buyers": "--under-way"}


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
    if plan.own is not None:
        plan.own.add()
    connections = buyers + SPARE_CONNECTIONS
    url = with_connections(plan.url, connections)
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


URL: Final = "SEGMENTED_URL"
DATABASE: Final = "SEGMENTED_DATABASE"
DATABASE_SPARE: Final = 40
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
            connections = 2 * buyers + DATABASE_SPARE
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
