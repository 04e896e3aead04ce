"""The history of a run, replayed: its counts, the buyers' orders and the times of the window are computed again."""

from __future__ import annotations

import io
import json
from array import array
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import zstandard

from bench.engine.folder import HISTORY_MAX
from bench.engine.skus import choice_of
from segmented.errors import InvalidInput
from segmented.files import bounded_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from bench.engine.record import Percentiles, Run

    Numbers = NDArray[np.float64]

FIELDS: Final = (
    "intended",
    "asked",
    "granted",
    "freed",
    "done",
    "sold",
    "sold_out",
    "failed",
    "attempts",
    "buyer",
    "first",
)
EDGE_S: Final = 0.0011
"""Seconds around an end of the window in which a call may be inside or outside: it is rounded to milliseconds."""
DIGITS: Final = 0.003
"""Share by which a time of a history, in microseconds, may differ from a histogram of three digits."""


def replayed(run: Run, folder: Path) -> str | None:
    """Return which figure the history contradicts, an empty text for none, or None if no history is there.

    Raises InvalidInput for a history that cannot be read.
    """
    calls = calls_of(folder, run, FIELDS)
    if calls is None:
        return None
    counts = run.counts
    totals = {name: int(calls[name].sum()) for name in ("sold", "sold_out", "failed")}
    if (totals["sold"], totals["sold_out"]) != (counts.sold, counts.sold_out):
        return "number of sold orders or refusals"
    if totals["failed"] + counts.shed > counts.failed:
        return "number of failed orders"
    if run.skus and _sold_by_sku(run, calls) != [one.sold for one in run.skus]:
        return "number of units sold of each sku"
    begin, end = run.series.window
    at = calls["intended"] if run.cell.loop == "open" else calls["done"]
    surely = (at >= begin + EDGE_S) & (at <= end - EDGE_S)
    maybe = (at >= begin - EDGE_S) & (at <= end + EDGE_S)
    answered = (calls["done"] >= begin - EDGE_S) & (calls["done"] <= end + EDGE_S)
    inside = (calls["done"] >= begin + EDGE_S) & (calls["done"] <= end - EDGE_S)
    sold = (run.orders_per_s or 0.0) * run.window_s
    slack = 1 + (run.orders_per_s or 0.0) * EDGE_S
    if run.orders_per_s is not None and not (
        calls["sold"][inside].sum() - slack <= sold <= calls["sold"][answered].sum() + slack
    ):
        return "rate"
    if run.fairness is not None and not _is_between(calls, inside, answered, run.fairness.by_buyer):
        return "number of orders by buyer"
    if run.cell.case is None and not run.skus and _refused_early(run, calls) > run.checker.refused_wrongly:
        return "number of refusals while units were free"
    return _times(run, calls, surely, maybe)


def _refused_early(run: Run, calls: dict[str, Numbers]) -> int:
    """Return how many refusals surely came while units were free: calls begun until then got fewer than there were."""
    order = np.argsort(calls["asked"])
    taken = np.concatenate([[0], np.cumsum((calls["sold"] + calls["failed"])[order])]) * run.cell.quantity
    until = np.searchsorted(calls["asked"][order], calls["done"][calls["sold_out"] > 0], side="right")
    return int((taken[until] + run.cell.quantity <= run.checker.stock).sum())


def _times(run: Run, calls: dict[str, Numbers], surely: NDArray[np.bool_], maybe: NDArray[np.bool_]) -> str:
    orders = calls["sold"] + calls["sold_out"] + calls["failed"]
    granted = (calls["sold"] > 0) & ~np.isnan(calls["granted"])
    held = granted & ~np.isnan(calls["freed"])
    each: tuple[tuple[str, Percentiles | None, Numbers, NDArray[np.bool_], Numbers], ...] = (
        ("service", run.times.service, calls["done"] - calls["asked"], orders > 0, orders),
        ("wait", run.times.wait, calls["granted"] - calls["asked"], granted, calls["sold"]),
        ("hold", run.times.hold, calls["freed"] - calls["granted"], held, np.ones(len(orders))),
    )
    for name, told, took, counts, weights in each:
        if told is None:
            continue
        least, most = (int(weights[one & counts].sum()) for one in (surely, maybe))
        if not least <= told.n <= most:
            return f"number of {name} times"
        found = took[maybe & counts]
        if told.max is not None and told.max > float(found.max()) * 1_000 * (1 + DIGITS) + DIGITS:
            return f"longest {name} time"
        sample = np.repeat(found, weights[maybe & counts].astype(int)) * 1_000
        if told.p50 is None or not len(sample):
            continue
        unsure = min(0.5, 0.02 + (most - least + float(weights.max())) / len(sample))
        low, high = np.quantile(sample, [0.5 - unsure, 0.5 + unsure], method="inverted_cdf")
        if not low * (1 - DIGITS) - DIGITS <= told.p50 <= high * (1 + DIGITS) + DIGITS:
            return f"median {name} time ({low:.3f} to {high:.3f} ms)"
    return ""


def _sold_by_sku(run: Run, calls: dict[str, Numbers]) -> list[int]:
    choice = choice_of(run.cell, run.seed)
    skus = [choice.of(int(first)) for first in calls["first"]]
    sold = np.bincount(skus, weights=calls["sold"], minlength=run.cell.skus)
    return [int(orders) * run.cell.quantity for orders in sold]


def _is_between(
    calls: dict[str, Numbers], inside: NDArray[np.bool_], answered: NDArray[np.bool_], each: list[int]
) -> bool:
    least, most = (
        np.bincount(calls["buyer"][one].astype(int), weights=calls["sold"][one], minlength=len(each))
        for one in (inside, answered)
    )
    return len(least) == len(each) and bool(np.all(least <= each) and np.all(each <= most))


def calls_of(
    folder: Path, run: Run, fields: Sequence[str], *, size_max: int = HISTORY_MAX
) -> dict[str, Numbers] | None:
    """Return fields of all calls of a run, in the order of their answers, NaN for null; None if no history is there.

    Raises InvalidInput for a history that cannot be read, or that has more than `size_max` MiB unpacked.
    """
    if run.history is None or not (folder / run.history).is_file():
        return None
    file, numbers = folder / run.history, array("d")
    try:
        with file.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as plain:
            for _, line in bounded_lines(io.BufferedReader(plain), file, size_max=size_max, of="calls"):
                found: dict[str, Any] = json.loads(line)
                numbers.extend([np.nan if found[name] is None else float(found[name]) for name in fields])
    except (OSError, zstandard.ZstdError, ValueError, KeyError, TypeError, RecursionError) as error:
        message = f"the history {file.name} cannot be read: {error}"
        raise InvalidInput(message) from error
    columns = np.frombuffer(numbers, dtype=np.float64).reshape(-1, len(fields)).T
    return dict(zip(fields, columns, strict=True))
