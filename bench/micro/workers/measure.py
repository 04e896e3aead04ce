"""The whole benchmark `workers`, and its figures: measured values beside their bounds."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.conditions import server_conditions
from bench.engine.percentiles import at_ms, histogram_of
from bench.figures import Figure, FigureResults, of_rounds
from bench.micro import workers
from segmented.errors import SegmentedError
from segmented.models import Order
from segmented.testing.worker_process import Launch, WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.micro.workers import BenchContext
    from bench.results import Display
    from segmented.models.submitted import Deciding
    from segmented.stock import Pool

    Bursts = Mapping[workers.Kind, Sequence[workers.Burst]]
    Broken = Mapping[str, str]

WARM_UP: Final = 20
DEATH: Final = "before:SettleMany"
"""The point at which the worker dies: it has begun its orders, and none of them is confirmed."""
BATCH: Final = 10
BATCHES: Final = 10
DEATH_SECONDS: Final = 30.0
FINISH_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.01
PAUSE_SECONDS: Final = 0.05


def measure_latency(context: BenchContext) -> dict[Deciding, list[float]]:
    """Return the seconds of every order; rounds of both ways of deciding alternate."""
    found: dict[Deciding, list[float]] = {decides: [] for decides in workers.DECIDING}
    for number in range(context.sizes.rounds):
        context.progress("idle latency", number, context.sizes.rounds)
        for decides in workers.DECIDING:
            with context.pool(decides) as pool:
                ids = [f"i-{index}" for index in range(WARM_UP + context.sizes.latencies)]
                seconds = context.processes.ask(
                    {"do": "latency", "sku": pool.sku, "decides": decides, "order_ids": ids}
                )
                found[decides] += seconds[WARM_UP:]
                if fault := workers.faults(pool, len(ids)):
                    context.broken.setdefault(f"idle latency, decided {decides}", fault)
    return found


def measure_recovery(context: BenchContext) -> dict[Deciding, list[float]]:
    """Return the seconds after each kill."""
    found: dict[Deciding, list[float]] = {decides: [] for decides in workers.DECIDING}
    if context.sizes.kills:
        context.processes.start_beat()
        # This starts the publisher: orders must not wait for that.
        context.processes.ask({"do": "empty", "queue": workers.LOADING, "count": 0})
    for number in range(context.sizes.kills):
        context.progress("kills", number, context.sizes.kills)
        decides = workers.DECIDING[number % len(workers.DECIDING)]
        found[decides].append(_kill(context, decides, number))
    return found


def _kill(context: BenchContext, decides: Deciding, number: int) -> float:
    folder = context.processes.folder / f"victim-{number}"
    folder.mkdir()
    launch = Launch(workers.APP, folder, pool=workers.POOL, environment=context.processes.given)
    with (
        context.pool(decides) as pool,
        ThreadPoolExecutor(1) as thread,  # left after the victim, whose end it awaits
        closing(WorkerProcess(launch, kill_at=DEATH)) as victim,
    ):
        victim.wait_ready()
        death = thread.submit(_ended_at, victim)
        sent = _send_until_dead(context, pool, victim)
        began = death.result()
        while pool.state().confirmed < sent and time.monotonic() < began + FINISH_SECONDS:
            time.sleep(LOOK_SECONDS)
        seconds = time.monotonic() - began
        if fault := workers.faults(pool, sent):
            context.broken.setdefault(f"recovery, decided {decides}", fault)
    return seconds


def _ended_at(victim: WorkerProcess) -> float:
    """Wait for the worker's end, in a thread while orders are published; return its local time."""
    while victim.is_running:
        time.sleep(LOOK_SECONDS)
    return time.monotonic()


def _send_until_dead(context: BenchContext, pool: Pool, victim: WorkerProcess) -> int:
    """Submit orders until the victim, which shares the queue with the other workers, has received an envelope."""
    deadline = time.monotonic() + DEATH_SECONDS
    numbers = count()
    sent = 0
    while victim.is_running:
        envelopes = [[f"r-{next(numbers)}" for _ in range(BATCH)] for _ in range(BATCHES)]
        pool.submit_many([Order(order_id, 1) for envelope in envelopes for order_id in envelope])
        context.processes.ask({"do": "orders", "queue": workers.QUEUE, "sku": pool.sku, "envelopes": envelopes})
        sent += BATCH * BATCHES
        if time.monotonic() > deadline:
            raise SegmentedError(f"no worker died within {DEATH_SECONDS:g} s")
        time.sleep(PAUSE_SECONDS)
    return sent


NAME: Final = "workers"
SINGLE_MIN: Final = 0.85
"""By CPU: Celery's own consumer is the one that an order is compared with, because the app's own one is faster."""
ENVELOPE_MIN: Final = 20.0
STORED_ENVELOPE_MIN: Final = 10.0
P99_MS_MAX: Final = 10.0
RECOVERY_SECONDS_MAX: Final = 10.0
ASKED_OF: Final = workers.DECIDING[0]
"""The bounds on throughput apply if stock is decided at acceptance."""


def measure_workers(
    url: str | None, database: str | None, display: Display, sizes: workers.Sizes | None = None
) -> FigureResults:
    """Measure on embedded servers, unless others are named: a stock server must be empty, and is emptied at the end."""
    start = workers.started_context
    with display.strategy(NAME) as progress, start(url, database, sizes or workers.Sizes(), progress) as context:
        placement = f"{workers.PROCESSES} workers ({workers.POOL}), shop and servers share the cores"
        found = {**server_conditions(context.url, "celery", "kombu"), "placement": placement}
        bursts, others = workers.measure_bursts(replace(context, plain_workers=context.processes.start_plain_workers()))
        waited = measure_latency(context)
        recovered = measure_recovery(context)
        broken = dict(context.broken)
    figures = (
        broken_figure(broken),
        *burst_figures(bursts, broken),
        *latency_figures(waited, broken),
        *recovery_figures(recovered, broken),
        Figure("cores that others used meanwhile", others, ""),
    )
    processes = f"{workers.PROCESSES} worker processes ({workers.POOL} pool)"
    remarks = (
        *(f"No figures for {part}: {fault}." for part, fault in broken.items()),
        f"{processes}, the same ones for everything; broker and stock on servers apart.",
    )
    return FigureResults(NAME, figures, found, remarks)


def burst_figures(found: Bursts, broken: Broken) -> list[Figure]:
    """Compare bursts of each round; parts that failed the check have no ratios."""
    ratios = [figure for decides in workers.DECIDING for figure in _ratios_of(found, broken, decides)]
    kept = [kind for kind in workers.KINDS if kind.name not in broken]
    rates = [of_rounds(kind.name, [burst.rate for burst in found[kind]], "/s") for kind in kept]
    costs = [
        of_rounds(f"{kind.name}: CPU of the workers", [burst.cpu_each for burst in found[kind]], "us each")
        for kind in kept
    ]
    return [*ratios, *rates, *costs]


def _ratios_of(found: Bursts, broken: Broken, decides: Deciding) -> list[Figure]:
    one, stored = workers.Kind(decides), workers.Kind(decides, is_stored=True)
    many = workers.Kind(decides, orders=workers.ENVELOPE)
    stored_many = replace(many, is_stored=True)
    is_asked = decides == ASKED_OF
    asked: tuple[tuple[workers.Kind, workers.Kind, float | None], ...] = (
        (one, workers.PLAIN_TASK, SINGLE_MIN),
        (one, workers.EMPTY_TASK, None),
        (many, one, ENVELOPE_MIN),
        (stored_many, stored, STORED_ENVELOPE_MIN),
        (stored_many, one, None),
        (stored, workers.EMPTY_TASK, None),
    )
    figures = []
    for above, below, least in asked:
        if broken.keys() & {above.name, below.name}:
            continue
        for what, part in (("", "rate"), (", by CPU of the workers", "per_cpu")):
            pairs = zip(found[above], found[below], strict=True)
            ratios = [getattr(ours, part) / getattr(theirs, part) for ours, theirs in pairs]
            bound = least if is_asked and bool(what) == (below is workers.PLAIN_TASK) else None
            figures.append(of_rounds(f"{above.name} / {below.name}{what}", ratios, "", at_least=bound))
    return figures


def latency_figures(found: Mapping[Deciding, Sequence[float]], broken: Broken) -> list[Figure]:
    """Return latency percentiles of single orders on an idle system."""
    figures = []
    for decides, seconds in found.items():
        name = f"idle latency, decided {decides}"
        if name in broken or not seconds:
            continue
        wait = histogram_of(np.asarray(seconds))
        detail = {"orders": len(seconds), "max ms": at_ms(wait, 100)}
        figures.append(Figure(f"{name}: p50", at_ms(wait, 50), "ms", detail=detail))
        figures.append(Figure(f"{name}: p99", at_ms(wait, 99), "ms", at_most=P99_MS_MAX, detail=detail))
    return figures


def recovery_figures(found: Mapping[Deciding, Sequence[float]], broken: Broken) -> list[Figure]:
    """Return the longest recovery time after a kill."""
    figures = []
    for decides, seconds in found.items():
        if seconds and (name := f"recovery, decided {decides}") not in broken:
            ends = min(seconds), max(seconds)
            detail = {"interval": "least and most of the kills", "kills": len(seconds)}
            figures.append(Figure(f"{name}: longest", ends[1], "s", *ends, RECOVERY_SECONDS_MAX, detail=detail))
    return figures


def broken_figure(broken: Broken) -> Figure:
    """Count the parts without figures; the only guarantee here, since the other bounds depend on the machine."""
    return Figure("parts whose orders were not accounted for", len(broken), "", at_most=0, is_promise=True)
