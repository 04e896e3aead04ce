"""The results of a sale under Locust, as text and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from bench.granularity.record import Percentiles
    from bench.load.coordinator import Result

COUNTS: Final = ("planned", "sent", "sold", "sold_out", "failed", "shed", "late")
COLUMNS: Final = ("p50", "p90", "p99", "p999", "max")


def as_json(result: Result) -> dict[str, Any]:
    """Return everything that was measured, without the server's address."""
    tally = result.tally
    return {
        "cell": result.plan.cell.model_dump(mode="json"),
        "cell_id": result.plan.cell.cell_id,
        "processes": len(result.plan.shares),
        "seed": result.plan.seed,
        "seconds": result.plan.seconds,
        "warm_up": result.plan.warm_up,
        "orders_per_s": None if result.broken else round(tally.goodput, 3),
        "counts": {name: getattr(tally, name) for name in COUNTS},
        "times_ms": {name: one.model_dump(mode="json") for name, one in tally.times().items() if one.n},
        "checker": result.checker.model_dump(mode="json"),
        "broken": list(result.broken),
    }


def as_text(result: Result) -> str:
    """Return the results for a terminal: counts, percentiles with their number of samples, and the verdict."""
    tally, plan = result.tally, result.plan
    rate = "none: the promise was broken" if result.broken else f"{tally.goodput:,.1f}/s"
    loop = "open loop" if plan.cell.loop == "open" else "closed loop"
    counts = "  ".join(f"{name.replace('_', ' ')} {getattr(tally, name):,}" for name in COUNTS)
    lines = [
        f"{plan.cell.cell_id}, {loop}, {len(plan.shares)} process{'es' if len(plan.shares) > 1 else ''}",
        f"orders that hold stock: {rate}",
        counts,
        f"{'ms':<10}{'n':>10}" + "".join(f"{_heading(name):>12}" for name in COLUMNS),
    ]
    lines += [_row(name, one) for name, one in tally.times().items() if one.n]
    if result.broken:
        lines += [f"broken: {sentence}" for sentence in result.broken]
    else:
        lines.append(f"kept: {result.checker.sold:,} sold, none oversold, none refused wrongly, none stranded")
    return "\n".join(lines)


def write(result: Result, file: str) -> None:
    """Write the JSON. Raises OSError."""
    with open(file, "w", encoding="utf-8") as out:  # noqa: PTH123  # a name from the command line
        json.dump(as_json(result), out, indent=2)
        out.write("\n")


def _heading(name: str) -> str:
    return "p99.9" if name == "p999" else name


def _row(name: str, times: Percentiles) -> str:
    values = (getattr(times, column) for column in COLUMNS)
    return f"{name:<10}{times.n:>10,}" + "".join(f"{'-' if one is None else f'{one:,.2f}':>12}" for one in values)
