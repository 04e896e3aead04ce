"""The pool of a locustfile, on Locust's own page while it sells: units, segments, and the verdict at the end."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any, Final

from locust.runners import WorkerRunner

from bench.load.page_tabs import Table, add_tabs
from segmented.errors import SegmentedError
from segmented.files import said_in_file
from segmented.masking import masked
from segmented.plans import run_sync
from segmented.stock import find_pool
from segmented.stores.redis import RedisStore
from segmented.watch.reading import PoolReading, reading_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from locust.env import Environment

    from segmented.stock import AuditReport, Pool, ShardedAuditReport, ShardedPool

URL: Final = "SEGMENTED_URL"
DEFAULT_URL: Final = "redis://localhost:6379/0"
EXIT_BROKEN: Final = 1
_POOL: Final = {
    "stocked": "Stock",
    "available": "Left",
    "reserved": "On hold",
    "confirmed": "Sold",
    "held": "Segments locked",
    "condition": "State",
    "verdict": "Books",
}
_SEGMENTS: Final = {"segment": "Segment", "left": "Left", "lock": "Lock"}

_log = logging.getLogger(__name__)
_guard = threading.Lock()
_stores: list[RedisStore] = []


def url() -> str:
    """Return the address of the pool's server, which the environment or a file names."""
    return said_in_file(URL) or os.environ.get(URL) or DEFAULT_URL


def host() -> str:
    """Return that address without its password: Locust shows it as the host, and so asks for none."""
    return masked(url())


def store() -> RedisStore:
    """Return this process's store; the first caller connects it, and the others wait."""
    with _guard:
        if not _stores:
            _stores.append(RedisStore.from_url(url()))
        return _stores[0]


class PoolPage:
    """Shows a pool on Locust's page, and judges it when the test stops. Only the master or single process does both."""

    def __init__(
        self, environment: Environment, broken: Callable[[Pool | ShardedPool], list[str]] = lambda _: []
    ) -> None:
        """Add the tabs. `broken` returns a sentence for each broken promise that an audit does not see."""
        self._environment, self._broken = environment, broken
        self.verdict = ""
        """One sentence; empty until the test has ended."""
        if environment.web_ui is not None:
            pool = Table("Pool", _POOL, lambda: pool_rows(self._read(), self.verdict))
            segments = Table("Segments", _SEGMENTS, lambda: segment_rows(self._read()))
            add_tabs(environment.web_ui, {"pool": pool, "segments": segments})

    @property
    def sku(self) -> str:
        """Return the pool that the test sells."""
        options: Any = self._environment.parsed_options
        return str(options.sku)

    def judge(self) -> None:
        """Audit the pool, which may still sell, and log the verdict in one line."""
        if isinstance(self._environment.runner, WorkerRunner):
            return
        try:
            pool = find_pool(store(), self.sku)
            broken = self._broken(pool)
            report = pool.audit()
        except SegmentedError as error:  # such as no pool: a busy machine may use up --run-time on the start
            self._conclude(f"not audited: {error}", is_kept=False)
            return
        broken += findings(report)
        state = report.state
        kept = (
            f"{state.confirmed:,} of {state.stocked:,} units sold, {state.reserved:,} on hold, {state.available:,} "
            "left: none oversold, no drift"
        )
        self._conclude("; ".join(broken) or kept, is_kept=not broken)

    def _conclude(self, verdict: str, *, is_kept: bool) -> None:
        self.verdict = verdict
        _log.log(logging.INFO if is_kept else logging.ERROR, "pool %s: %s", self.sku, verdict)
        if not is_kept:
            self._environment.process_exit_code = EXIT_BROKEN

    def _read(self) -> PoolReading:
        try:
            return run_sync(reading_plan(self.sku), store())
        except SegmentedError as error:
            return PoolReading(self.sku, 0.0, note=str(error))


def findings(report: AuditReport | ShardedAuditReport) -> list[str]:
    """Return what an audit found, one sentence each."""
    found = [f"{report.oversold:,} units oversold"] if report.oversold else []
    found += [f"{report.refused_wrongly:,} orders refused although units were free"] if report.refused_wrongly else []
    if report.drift_count:
        found.append(
            f"{report.drift_count:,} differences between the ledger and the pool, the first: {report.drift[0].detail}"
        )
    return found


def pool_rows(reading: PoolReading, verdict: str) -> list[dict[str, Any]]:
    """Return the row of the pool, or why it could not be read."""
    if reading.state is None:
        return [{"condition": reading.note, "verdict": verdict}]
    state = reading.state
    return [
        {
            "stocked": state.stocked,
            "available": state.available,
            "reserved": state.reserved,
            "confirmed": state.confirmed,
            "held": f"{sum(reading.held)} of {len(state.stock)}",
            "condition": state.condition,
            "verdict": verdict or "audited when the test stops",
        }
    ]


def segment_rows(reading: PoolReading) -> list[dict[str, Any]]:
    """Return a row a segment: units left, and whether its lock is held."""
    if reading.state is None:
        return []
    rows = zip(reading.state.stock, reading.held, strict=False)  # a pool may be resized between the two reads
    return [
        {"segment": segment, "left": left, "lock": "held" if is_held else "free"}
        for segment, (left, is_held) in enumerate(rows)
    ]
