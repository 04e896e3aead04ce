"""Every benchmark by name. A benchmark adds itself here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.dedup.measure import NAME as DEDUP, measure_dedup
from bench.demo import NAME as DEMO, measure_demo
from bench.locks.measure import NAME as LOCKS, measure_locks
from bench.options import DemoOptions
from bench.stock.measure import NAME as STOCK, measure_stock
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
class Benchmark:
    """A measurement with fixed options."""

    summary: str
    measure: Callable[[Where, Watch], Findings]


def _demo(where: Where, watch: Watch) -> Results:
    return measure_demo(DemoOptions(url=where.url, database=where.database), watch)


def _locks(where: Where, watch: Watch) -> Findings:
    return measure_locks(where.url, watch)


def _dedup(where: Where, watch: Watch) -> Findings:
    return measure_dedup(where.url, watch)


def _stock(where: Where, watch: Watch) -> Findings:
    return measure_stock(where.url, watch)


BENCHMARKS: Final[dict[str, Benchmark]] = {
    DEMO: Benchmark("no lock, one lock, 20 segment locks and lock-free, a hold of 20 ms, 64 buyers", _demo),
    LOCKS: Benchmark("a lock alone, beside other libraries' locks; ten waiters; 10,000 leases renewed", _locks),
    STOCK: Benchmark("orders of a pool beside a bare decrement; time, memory and commands an order; grants", _stock),
    DEDUP: Benchmark("a trivial task with Once beside a plain one; memory a record; a claim among live keys", _dedup),
}


def find_benchmark(name: str) -> Benchmark:
    """Return a benchmark. Raises InvalidInput that names those that exist."""
    if name not in BENCHMARKS:
        message = f"there is no benchmark {name!r}; there is: {', '.join(BENCHMARKS)}"
        raise InvalidInput(message)
    return BENCHMARKS[name]
