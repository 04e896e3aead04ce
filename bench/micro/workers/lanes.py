"""`segmented bench celery`: one lock against K segments, with the slow step in Celery workers.

Each message has one order. A worker takes its units under the lock of a segment, and holds the lock while the step
sleeps; with a commit the order's transaction is under the lock too. So at most min(K, threads) orders are in the slow
step. The figures and the bounds are those of `segmented bench locust`: a lone order's hold comes from the ledger, from
`reserved` to `confirmed`. Celery's own ceiling, empty tasks of the same workers, is measured in every round.

Orders decided at acceptance and submitted one by one are measured too, with a PostgreSQL that is 10 ms away: their
envelopes lock the rows of their segments in the order database, and no other lock.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from sqlalchemy import make_url

from bench.conditions import OtherLoad, server_conditions
from bench.figures import SEGMENT_COUNTS, Arm, Figure, FigureResults, arm_figures, cost_figures, of_rounds
from bench.micro import workers
from bench.proxy import delayed
from bench.sizing import shuffled_rounds
from bench.strategies.pooled import ledger_of
from segmented import Outbox, Pool
from segmented.errors import SegmentedError
from segmented.servers import PostgresServer
from segmented.servers.postgres import SOCKET_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from bench.micro.workers import BenchContext
    from bench.results import Display
    from segmented.models import LedgerEntry

    Bursts = Mapping[Arm, Sequence[workers.Burst]]

NAME: Final = "celery"
THREADS: Final = 32
SLOTS: Final = workers.PROCESSES * THREADS
HOLDS_MS: Final = (20, 50)
DELAY_MS: Final = 10.0
ENVELOPE: Final = 50
"""Maximum orders of an envelope of orders that were submitted one by one."""
RATIO_MIN: Final = 15.0
SHARE_MIN: Final = 0.9
MICROSECONDS: Final = 1_000_000
WARM_UP: Final = 64
WORKERS: Final = {
    "SEGMENTED_POOL": "threads",
    "SEGMENTED_CONCURRENCY": str(THREADS),
    "SEGMENTED_STEP": "bench.micro.workers.app:hold",
    "SEGMENTED_SEGMENT_TIMEOUT": "15",
}
"""An order waits for its segment in its worker; without a sweep, one that was put off would not come again."""


@dataclass(frozen=True, slots=True)
class LaneSizes:
    """How much is measured."""

    rounds: int = 5
    seconds: float = 3.0
    """Seconds that a burst would take at its bound."""
    empty: int = 4_000
    """Empty tasks of a round."""
    lone: int = 20
    """Orders that are worked off one after another, for a hold without contention."""
    singles: int = 6_000
    """Orders of a burst that are submitted one by one."""


@dataclass(frozen=True, slots=True)
class Single:
    """Orders submitted one by one, decided at acceptance, stored in a PostgreSQL behind a network delay."""

    segments: int

    @property
    def name(self) -> str:
        """Name in the figures."""
        counted = "1 segment" if self.segments == 1 else f"{self.segments} segments"
        return f"submitted one by one, {counted}, PostgreSQL {DELAY_MS:g} ms away"


SINGLES: Final = tuple(Single(segments) for segments in (1, 4, 16))
LANES: Final = tuple(
    Arm(segments, hold, commits) for hold in HOLDS_MS for commits in (False, True) for segments in SEGMENT_COUNTS
)
ASKED: Final = {f"{Arm(20, 50).name} / one lock": RATIO_MIN, Arm(20, 20).name: SHARE_MIN}
"""Bounds that were asked, by name: a ratio, and a share of the bound."""


def measure_lanes(
    url: str | None, database: str | None, display: Display, sizes: LaneSizes | None = None
) -> FigureResults:
    """Measure on embedded servers, unless others are named: a stock server must be empty, and is emptied at the end."""
    sizes = sizes or LaneSizes()
    with (
        display.strategy(NAME) as progress,
        workers.started_context(url, database, workers.Sizes(rounds=sizes.rounds), progress, WORKERS) as context,
    ):
        placement = f"{workers.PROCESSES} workers of {THREADS} threads, shop and servers share the cores"
        found = {**server_conditions(context.url, "celery", "kombu"), "placement": placement}
        lone = {arm: measure_lone(context, arm, sizes.lone) for arm in dict.fromkeys(arm.one_lock for arm in LANES)}
        bursts, empty, others = measure_rounds(context, sizes, lone)
        broken = dict(context.broken)
    with display.strategy(f"{NAME}, one by one") as progress, delayed_context(progress, sizes) as context:
        singles = measure_singles(context, sizes)
        broken |= context.broken
    figures = (
        Figure("parts whose orders were not accounted for", len(broken), "", at_most=0, is_promise=True),
        *lane_figures(bursts, lone, empty, broken),
        *single_figures(singles, broken),
        Figure("cores that others used meanwhile", others, ""),
    )
    remarks = tuple(f"No figures for {part}: {fault}." for part, fault in broken.items())
    return FigureResults(NAME, figures, found, remarks)


def measure_lone(context: BenchContext, arm: Arm, count: int) -> float:
    """Let one order after another be worked off with one lock. Return the mean hold, in seconds by the server's clock.

    Raises SegmentedError if an order was not confirmed.
    """
    context.progress("a lone order", 0, 1)
    with context.pool("in the worker", gated=arm.commits, segments=1) as pool:
        ids = [f"{arm.hold_ms:g}-{index}" for index in range(count + 1)]
        context.processes.ask({"do": "latency", "sku": pool.sku, "decides": "in the worker", "order_ids": ids})
        found = holds(ledger_of(pool.store, pool.sku))
    if len(found) != len(ids):
        raise SegmentedError(f"a lone order, {arm.work}: {len(found)} of {len(ids)} orders were confirmed")
    return fmean(found[1:])  # the first one loads what the worker needs


def holds(entries: Iterable[LedgerEntry]) -> list[float]:
    """Return the seconds from `reserved` to `confirmed` of each order, by the server's clock."""
    reserved: dict[str | None, int] = {}
    found = []
    for entry in entries:
        if entry.kind == "reserved":
            reserved[entry.order_id] = entry.at_us
        elif entry.kind == "confirmed" and entry.order_id in reserved:
            found.append((entry.at_us - reserved[entry.order_id]) / MICROSECONDS)
    return found


def measure_rounds(
    context: BenchContext, sizes: LaneSizes, lone: Mapping[Arm, float]
) -> tuple[dict[Arm, list[workers.Burst]], list[workers.Burst], float]:
    """Run every lane and the empty task once a round, in random order. Return the bursts, and the cores of others."""
    context.progress("first messages", 0, 1)
    workers.empty_burst(context, WARM_UP)
    _burst(context, LANES[-1], WARM_UP)
    found: dict[Arm, list[workers.Burst]] = {lane: [] for lane in LANES}
    empty: list[workers.Burst] = []
    others = OtherLoad()
    for number, lane in shuffled_rounds([*LANES, None], sizes.rounds):
        context.progress("rounds", number, sizes.rounds)
        if lane is None:
            empty.append(workers.empty_burst(context, sizes.empty))
        else:
            orders = max(WARM_UP, round(lane.bound_per_s(lone, SLOTS) * sizes.seconds))
            found[lane].append(_burst(context, lane, orders))
    return found, empty, others.cores()


@contextmanager
def delayed_context(progress: Callable[[str, int, int], None], sizes: LaneSizes) -> Iterator[BenchContext]:
    """Start servers and workers of which every round trip to PostgreSQL takes 10 ms more."""
    plain = {name: value for name, value in WORKERS.items() if name != "SEGMENTED_STEP"}
    with ExitStack() as stack:
        url = make_url(stack.enter_context(PostgresServer.start(max_connections=workers.CONNECTIONS)).url)
        proxy = stack.enter_context(delayed(f"unix://{url.query['host']}/{SOCKET_NAME}", DELAY_MS))
        folder = str(Path(urlsplit(proxy).path).parent)
        far = url.set(query={"host": folder}).render_as_string(hide_password=False)
        whole = workers.Sizes(rounds=sizes.rounds)
        yield stack.enter_context(workers.started_context(None, far, whole, progress, plain))


def measure_singles(context: BenchContext, sizes: LaneSizes) -> dict[Single, list[workers.Burst]]:
    """Run every number of segments once a round, in random order."""
    found: dict[Single, list[workers.Burst]] = {single: [] for single in SINGLES}
    _single_burst(context, SINGLES[-1], WARM_UP)
    for number, single in shuffled_rounds(SINGLES, sizes.rounds, seed=2):
        context.progress("rounds", number, sizes.rounds)
        found[single].append(_single_burst(context, single, sizes.singles))
    return found


class Loaded:
    """A publisher with as many orders as it can take: each envelope is full, with orders of one segment."""

    def __init__(self) -> None:
        """Create a publisher without orders."""
        self._waiting: dict[int | None, list[str]] = {}

    def put(self, sku: str, order_ids: Sequence[str], segment: int | None = None) -> None:  # noqa: ARG002  # of the protocol
        """Keep the orders."""
        self._waiting.setdefault(segment, []).extend(order_ids)

    def send(self, sku: str, order_ids: Sequence[str]) -> None:
        """Keep the orders."""
        self.put(sku, order_ids)

    def room(self) -> None:
        """Return None: there is no limit."""

    def envelopes(self) -> list[list[str]]:
        """Return the envelopes, those of different segments in turns, as they would be under load."""
        cut = [[ids[at : at + ENVELOPE] for at in range(0, len(ids), ENVELOPE)] for ids in self._waiting.values()]
        return [envelope for turn in zip_longest(*cut) for envelope in turn if envelope]


def _single_burst(context: BenchContext, single: Single, count: int) -> workers.Burst:
    loaded = Loaded()
    with context.pool("at acceptance", gated=True, segments=single.segments) as pool:
        shop = Pool(context.store, pool.sku, gate=context.gate, outbox=Outbox(loaded))
        for index in range(count):
            shop.submit(f"o-{index}")
        envelopes = loaded.envelopes()
        context.processes.ask({"do": "orders", "queue": workers.LOADING, "sku": pool.sku, "envelopes": envelopes})
        burst = workers.work_off(context, len(envelopes), count)
        if fault := workers.faults(pool, count, context.gate):
            context.broken.setdefault(single.name, fault)
    return burst


def _burst(context: BenchContext, lane: Arm, count: int) -> workers.Burst:
    with context.pool("in the worker", gated=lane.commits, segments=lane.segments) as pool:
        sent = workers.load(context, pool, [f"{lane.hold_ms:g}-{index}" for index in range(count)], 1)
        burst = workers.work_off(context, count, sent)
        if fault := workers.faults(pool, sent, context.gate if lane.commits else None):
            context.broken.setdefault(lane.name, fault)
    return burst


def lane_figures(
    found: Bursts, lone: Mapping[Arm, float], empty: Sequence[workers.Burst], broken: Mapping[str, str]
) -> list[Figure]:
    """Compare each number of segments with one lock, and with its bound, round by round."""
    kept = {lane: bursts for lane, bursts in found.items() if lane.name not in broken}
    rates = {lane: {number: burst.rate for number, burst in enumerate(bursts)} for lane, bursts in kept.items()}
    ceiling = {number: burst.rate for number, burst in enumerate(empty)}
    return [
        *arm_figures(rates, lone, at_once=SLOTS, ceiling=ceiling, asked=ASKED),
        *cost_figures({lane: [burst.cpu_each for burst in bursts] for lane, bursts in kept.items()}, "the workers"),
        of_rounds("Celery's ceiling: empty tasks", [burst.rate for burst in empty], "/s"),
    ]


def single_figures(found: dict[Single, list[workers.Burst]], broken: dict[str, str]) -> list[Figure]:
    """Compare each number of segments with one segment, round by round."""
    one, *others = SINGLES
    kept = [single for single in SINGLES if single.name not in broken]
    figures = [of_rounds(single.name, [burst.rate for burst in found[single]], "/s") for single in kept]
    for single in others:
        if {one, single} <= set(kept):
            ratios = [many.rate / first.rate for many, first in zip(found[single], found[one], strict=True)]
            figures.append(of_rounds(f"{single.name} / 1 segment", ratios, ""))
    return figures
