"""All benchmarks with fixed options, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.demo.measure import NAME as DEMO, DemoOptions, measure_demo
from bench.load.measure import NAME as LOCUST, Sizes as LocustSizes, measure_locust
from bench.micro.dedup.context import Sizes as DedupSizes
from bench.micro.dedup.measure import NAME as DEDUP, measure_dedup
from bench.micro.locks.measure import NAME as LOCKS, measure_locks
from bench.micro.shards.measure import NAME as SHARDS, ShardSizes, measure_masters
from bench.micro.stock.context import Sizes as StockSizes
from bench.micro.stock.measure import NAME as STOCK, measure_stock
from bench.micro.workers.context import Sizes as WorkerSizes
from bench.micro.workers.lanes import NAME as CELERY, LaneSizes, measure_lanes
from bench.micro.workers.measure import NAME as WORKERS, measure_workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.demo.results import Results
    from bench.display import Display
    from bench.fixed_report import Reported

SALE_SECONDS: Final = 15.0
QUICK_SALE_SECONDS: Final = 4.0
QUICK_STOCK: Final = StockSizes(
    rounds=1,
    bare_calls=20_000,
    batch_orders=10_000,
    calls=10,
    order_counts=(10_000, 50_000),
    sharded_stock=5_000,
    grant_seconds=1.0,
)
QUICK_DEDUP: Final = DedupSizes(rounds=3, records=2_000, claims=5_000, seconds=5.0)


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses of servers to use instead of embedded ones."""

    url: str | None = None
    database: str | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a benchmark should be."""

    quick: bool = False
    rounds: int | None = None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark with fixed options."""

    summary: str
    measure: Callable[[Addresses, Scale, Display], Reported]
    leaves_out: str
    """Measurements that the quick form, which takes less than two minutes, leaves out."""
    has_rounds: bool = False
    """Whether the number of rounds is an option."""


def _demo(addresses: Addresses, scale: Scale, display: Display) -> Results:
    seconds = QUICK_SALE_SECONDS if scale.quick else SALE_SECONDS
    return measure_demo(DemoOptions(url=addresses.url, database=addresses.database, seconds=seconds), display)


def _locks(addresses: Addresses, scale: Scale, display: Display) -> Reported:
    return measure_locks(addresses.url, display, is_quick=scale.quick)


def _dedup(addresses: Addresses, scale: Scale, display: Display) -> Reported:
    return measure_dedup(addresses.url, display, QUICK_DEDUP if scale.quick else None)


def _stock(addresses: Addresses, scale: Scale, display: Display) -> Reported:
    return measure_stock(addresses.url, display, QUICK_STOCK if scale.quick else None)


def _workers(addresses: Addresses, scale: Scale, display: Display) -> Reported:
    sizes = WorkerSizes.for_options(quick=scale.quick, rounds=scale.rounds)
    return measure_workers(addresses.url, addresses.database, display, sizes)


def _celery(addresses: Addresses, scale: Scale, display: Display) -> Reported:
    sizes = LaneSizes.for_options(quick=scale.quick, rounds=scale.rounds)
    return measure_lanes(addresses.url, addresses.database, display, sizes)


def _locust(addresses: Addresses, scale: Scale, display: Display) -> Reported:
    sizes = LocustSizes.for_options(quick=scale.quick, rounds=scale.rounds)
    return measure_locust(addresses.url, addresses.database, display, sizes)


def _shards(addresses: Addresses, scale: Scale, display: Display) -> Reported:
    sizes = ShardSizes.for_options(quick=scale.quick, rounds=scale.rounds)
    return measure_masters(addresses.url, display, sizes)


BENCHMARKS: Final[dict[str, Benchmark]] = {
    DEMO: Benchmark(
        "no lock, one lock, 20 segment locks and lock-free, a hold of 20 ms, 64 buyers",
        _demo,
        f"sales of {QUICK_SALE_SECONDS:g} s instead of {SALE_SECONDS:g} s",
    ),
    LOCKS: Benchmark(
        "an uncontended lock compared with other libraries' locks; ten waiters; 10,000 leases renewed",
        _locks,
        "libraries that are not installed, and the 10,000 leases",
    ),
    STOCK: Benchmark(
        "orders of a pool compared with a bare decrement; time, memory and commands per order; grants",
        _stock,
        f"{QUICK_STOCK.rounds} round instead of {StockSizes().rounds}, pools of 50,000 orders instead of 1,000,000",
    ),
    DEDUP: Benchmark(
        "a trivial task with Once compared with a plain one; memory per record; a claim among live keys",
        _dedup,
        f"{QUICK_DEDUP.rounds} rounds instead of {DedupSizes().rounds}, and claims among fewer keys",
    ),
    WORKERS: Benchmark(
        "orders through workers compared with an empty task, singly and by the hundred; idle latency; after a kill",
        _workers,
        "2 rounds instead of 7, fewer messages, and one kill each",
        has_rounds=True,
    ),
    CELERY: Benchmark(
        "one lock against 4, 20 and 64 segments in two Celery workers of 32 threads, beside Celery's own ceiling",
        _celery,
        "2 rounds instead of 5, of 1 s instead of 3 s",
        has_rounds=True,
    ),
    LOCUST: Benchmark(
        "one lock against 4, 20 and 64 segments with the same 64 Locust users; 20 ms, and 20 ms and a commit",
        _locust,
        "sales with a commit, and 2 rounds instead of 6, of 1.5 s instead of 6 s",
        has_rounds=True,
    ),
    SHARDS: Benchmark(
        "a pool in shards on 1 to 8 masters: CPU and commands per order, transfers; throughput beside a queueing model",
        _shards,
        "1 round instead of 6 without intervals, 1, 2 and 4 masters only, and shorter sales and cells",
        has_rounds=True,
    ),
}
