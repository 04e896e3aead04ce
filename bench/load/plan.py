"""The plan of a sale under Locust, made from the command line by the coordinator and sent to the workers.

A strategy is connected to the servers of a plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from bench import sizing
from bench.engine.cell import SPARE_CONNECTIONS, Cell, Frozen
from bench.load.tally import LATE_MAX
from bench.sections import KINDS
from bench.strategies import STRATEGIES
from bench.strategies.base import StrategyContext, with_connections
from bench.strategies.own import OwnStrategy, add_strategy
from segmented.errors import InvalidInput
from segmented.orders import Gate, connect
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from locust.argument_parser import LocustArgumentParser
    from sqlalchemy import Engine

    from bench.strategies.base import Strategy

SECONDS_MAX: Final = 3_600.0
"""Maximum length of a sale: every call is kept until the sale is checked."""
ORDERS_A_SHARE: Final = 10**12
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
