"""The CPU time that the servers need for a million sold orders, and its price. Pure arithmetic over recorded figures.

Redis: `work.server_us`, in microseconds an order, is the same number in seconds a million orders. The database: cores
used in the window, divided by the rate. A generator, Celery's broker and its workers are not servers here.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.engine.record import Run

MILLION: Final = 1_000_000
SECONDS_AN_HOUR: Final = 3_600


def without_redis(run: Run) -> bool:
    """Return whether only the database sells, so that Redis counts say nothing about orders."""
    return run.cell.strategy.startswith("pg-")


def server_seconds(run: Run) -> float | None:
    """Return the CPU seconds of Redis and the database for a million sold orders; None if they are not known.

    A void run has none. If the plan fixes the stock, the database's cores include refusals, so they tell nothing.
    """
    if run.orders_per_s is None or (run.cpu.database is not None and run.cell.stock is not None):
        return None
    redis = 0.0 if without_redis(run) else run.work.server_us
    return redis + (run.cpu.database or 0.0) / run.orders_per_s * MILLION


def mean_server_seconds(runs: Iterable[Run]) -> float | None:
    """Return the mean over the runs that have it; None if none has."""
    found = [seconds for run in runs if (seconds := server_seconds(run)) is not None]
    return fmean(found) if found else None


def price(seconds: float, core_hour: float) -> float:
    """Return the price of CPU seconds, in the currency of the price of a core-hour."""
    return seconds / SECONDS_AN_HOUR * core_hour


def check_price(core_hour: float) -> None:
    """Raise InvalidInput for a price that is not above 0 and finite."""
    if not 0 < core_hour < float("inf"):
        message = f"--core-hour {core_hour:g}: the price of a core-hour is a number above 0, such as 0.04"
        raise InvalidInput(message)
