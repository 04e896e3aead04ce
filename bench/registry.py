"""Every benchmark by name. A benchmark adds itself here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.dedup.measure import NAME as DEDUP, measure_dedup
from bench.demo import NAME as DEMO, measure_demo
from bench.locks.measure import NAME as LOCKS, measure_locks
from bench.options import DemoOptions
from bench.stock.measure import NAME as STOCK, measure_stock
from bench.workers.measure import NAME as WORKERS, measure_workers
from bench.workers.sizes import Sizes as WorkerSizes
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.results import Findings, Results
    from bench.watch import Watch


@dataclass(frozen=True, slots=True)
class Where:
    """The servers to use instead of embedded ones."""

    url: str | None = None
    database: str | None = None


@dataclass(frozen=True, slots=True)
class HowMuch:
    """What a benchmark with sizes may be told."""

    quick: bool = False
    rounds: int | None = None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A measurement with fixed options."""

    summary: str
    measure: Callable[[Where, HowMuch, Watch], Findings]
    has_sizes: bool = False
    """Can it be told how much to do?"""


def _demo(where: Where, _: HowMuch, watch: Watch) -> Results:
    return measure_demo(DemoOptions(url=where.url, database=where.database), watch)


def _locks(where: Where, _: HowMuch, watch: Watch) -> Findings:
    return measure_locks(where.url, watch)


def _dedup(where: Where, _: HowMuch, watch: Watch) -> Findings:
    return measure_dedup(where.url, watch)


def _stock(where: Where, _: HowMuch, watch: Watch) -> Findings:
    return measure_stock(where.url, watch)


def _workers(where: Where, how_much: HowMuch, watch: Watch) -> Findings:
    sizes = WorkerSizes.told(quick=how_much.quick, rounds=how_much.rounds)
    return measure_workers(where.url, where.database, watch, sizes)


BENCHMARKS: Final[dict[str, Benchmark]] = {
    DEMO: Benchmark("no lock, one lock, 20 segment locks and lock-free, a hold of 20 ms, 64 buyers", _demo),
    LOCKS: Benchmark("a lock alone, beside other libraries' locks; ten waiters; 10,000 leases renewed", _locks),
    STOCK: Benchmark("orders of a pool beside a bare decrement; time, memory and commands an order; grants", _stock),
    DEDUP: Benchmark("a trivial task with Once beside a plain one; memory a record; a claim among live keys", _dedup),
    WORKERS: Benchmark(
        "orders of real workers beside an empty task, alone and by the hundred; idle latency; after a kill",
        _workers,
        has_sizes=True,
    ),
}


def find_benchmark(name: str) -> Benchmark:
    """Return a benchmark. Raises InvalidInput that names those that exist."""
    if name not in BENCHMARKS:
        message = f"there is no benchmark {name!r}; there is: {', '.join(BENCHMARKS)}"
        raise InvalidInput(message)
    return BENCHMARKS[name]


def check_sizes(name: str, benchmark: Benchmark, how_much: HowMuch) -> None:
    """Refuse options that a benchmark with fixed ones does not have. Raises InvalidInput."""
    if how_much != HowMuch() and not benchmark.has_sizes:
        having = ", ".join(other for other, one in BENCHMARKS.items() if one.has_sizes)
        message = f"the benchmark {name} does what it does: --quick and --rounds are for {having}"
        raise InvalidInput(message)
