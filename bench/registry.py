"""All benchmarks with fixed options, by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from bench.demo.measure import NAME as DEMO, DemoOptions, measure_demo
from bench.load.measure import NAME as LOCUST, Sizes as LocustSizes, measure_locust
from bench.micro.dedup.measure import NAME as DEDUP, Sizes as DedupSizes, measure_dedup
from bench.micro.locks.measure import NAME as LOCKS, measure_locks
from bench.micro.shards.measure import NAME as SHARDS, ShardSizes, measure_masters
from bench.micro.stock.context import Sizes as StockSizes
from bench.micro.stock.measure import NAME as STOCK, measure_stock
from bench.micro.workers.context import Sizes as WorkerSizes
from bench.micro.workers.lanes import NAME as CELERY, LaneSizes, measure_lanes
from bench.micro.workers.measure import NAME as WORKERS, measure_workers

if TYPE_CHECKING:
    from collections.abc import Callable

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
QUICK_WORKERS: Final = WorkerSizes(
    rounds=2, singles=200, stored_singles=100, envelopes=30, stored_envelopes=10, latencies=60, kills=1
)
QUICK_CELERY: Final = LaneSizes(rounds=2, seconds=1.0, empty=1_000, lone=10, singles=1_000)
QUICK_LOCUST: Final = LocustSizes(rounds=2, seconds=1.5, warm_up=0.5, lone_seconds=2.0, commits=(False,))
QUICK_SHARDS: Final = ShardSizes(rounds=1, masters=(1, 2, 4), stock_each=400, seconds=0.5)


class _Sizes(Protocol):
    @property
    def rounds(self) -> int: ...


SizesT = TypeVar("SizesT", bound=_Sizes)


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

    def of(self, whole: SizesT, quick: SizesT) -> SizesT:
        """Return the sizes: the quick ones if they are wanted, with this number of rounds if one is given."""
        sizes: Any = quick if self.quick else whole
        found: SizesT = replace(sizes, rounds=self.rounds or sizes.rounds)
        return found


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark with fixed options."""

    summary: str
    measure: Callable[[Addresses, Scale, Display], Reported]
    leaves_out: str
    """Measurements that the quick form, which takes less than two minutes, leaves out."""


BENCHMARKS: Final[dict[str, Benchmark]] = {
    DEMO: Benchmark(
        "no lock, one lock, 20 segment locks and lock-free, a hold of 20 ms, 64 buyers",
        lambda at, scale, display: measure_demo(
            DemoOptions(url=at.url, database=at.database, seconds=QUICK_SALE_SECONDS if scale.quick else SALE_SECONDS),
            display,
        ),
        f"sales of {QUICK_SALE_SECONDS:g} s instead of {SALE_SECONDS:g} s",
    ),
    LOCKS: Benchmark(
        "an uncontended lock compared with other libraries' locks; ten waiters; 10,000 leases renewed",
        lambda at, scale, display: measure_locks(at.url, display, is_quick=scale.quick, rounds=scale.rounds),
        "libraries that are not installed, and the 10,000 leases",
    ),
    STOCK: Benchmark(
        "orders of a pool compared with a bare decrement; time, memory and commands per order; grants",
        lambda at, scale, display: measure_stock(at.url, display, scale.of(StockSizes(), QUICK_STOCK)),
        f"{QUICK_STOCK.rounds} round instead of {StockSizes().rounds}, pools of 50,000 orders instead of 1,000,000",
    ),
    DEDUP: Benchmark(
        "a trivial task with Once compared with a plain one; memory per record; a claim among live keys",
        lambda at, scale, display: measure_dedup(at.url, display, scale.of(DedupSizes(), QUICK_DEDUP)),
        f"{QUICK_DEDUP.rounds} rounds instead of {DedupSizes().rounds}, and claims among fewer keys",
    ),
    WORKERS: Benchmark(
        "orders through workers compared with an empty task, singly and by the hundred; idle latency; after a kill",
        lambda at, scale, display: measure_workers(
            at.url, at.database, display, scale.of(WorkerSizes(), QUICK_WORKERS)
        ),
        "2 rounds instead of 7, fewer messages, and one kill each",
    ),
    CELERY: Benchmark(
        "one lock against 4, 20 and 64 segments in two Celery workers of 32 threads, beside Celery's own ceiling",
        lambda at, scale, display: measure_lanes(at.url, at.database, display, scale.of(LaneSizes(), QUICK_CELERY)),
        "2 rounds instead of 5, of 1 s instead of 3 s",
    ),
    LOCUST: Benchmark(
        "one lock against 4, 20 and 64 segments with the same 64 Locust users; 20 ms, and 20 ms and a commit",
        lambda at, scale, display: measure_locust(at.url, at.database, display, scale.of(LocustSizes(), QUICK_LOCUST)),
        "sales with a commit, and 2 rounds instead of 6, of 1.5 s instead of 6 s",
    ),
    SHARDS: Benchmark(
        "a pool in shards on 1 to 8 masters: CPU and commands per order, transfers; throughput beside a queueing model",
        lambda at, scale, display: measure_masters(at.url, display, scale.of(ShardSizes(), QUICK_SHARDS)),
        "1 round instead of 6 without intervals, 1, 2 and 4 masters only, and shorter sales and cells",
    ),
}
