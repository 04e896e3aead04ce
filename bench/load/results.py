"""The results of a sale under Locust: as text, as JSON, and as three tabs in Locust's own page while it runs.

The tabs show units by segment, how long orders wait for a lock and hold it, and the sales so far beside one lock. Each
is also there as JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from flask import Blueprint, Response, jsonify, request

from segmented.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from locust.web import WebUI

    from bench.engine.cell import Cell
    from bench.engine.record import Percentiles
    from bench.load.plan import Result, SaleCoordinator


@dataclass(frozen=True, slots=True)
class PageTable:
    """A tab."""

    title: str
    columns: Mapping[str, str]
    """Titles by the key of a row."""
    rows: Callable[[], Sequence[Mapping[str, Any]]]
    """Called at each refresh of the page, about every two seconds."""


def add_tabs(web_ui: WebUI, tables: Mapping[str, PageTable]) -> None:
    """Add tables to the page, each under its key: as a tab, and as JSON under /segmented/KEY."""
    web_ui.template_args["extended_tabs"] = [{"title": table.title, "key": key} for key, table in tables.items()]
    web_ui.template_args["extended_tables"] = [
        {"key": key, "structure": [{"key": name, "title": title} for name, title in table.columns.items()]}
        for key, table in tables.items()
    ]
    app = web_ui.app
    if app is None:
        return
    blueprint = Blueprint(
        "segmented", __name__, url_prefix=getattr(web_ui.environment.parsed_options, "web_base_path", "")
    )

    @blueprint.route("/segmented/<key>")
    @web_ui.auth_required_if_enabled  # type: ignore[untyped-decorator]  # Locust has no types for it
    def as_json(key: str) -> Response:
        if key not in tables:
            return Response(f"there is no table {key}", status=404)
        return jsonify(tables[key].rows())

    app.register_blueprint(blueprint)

    @app.after_request
    def extend(response: Response) -> Response:
        if request.path.endswith("/stats/requests") and response.is_json:
            found = [{"key": key, "data": table.rows()} for key, table in tables.items()]
            response.set_data(json.dumps({**response.get_json(), "extended_stats": found}))
        return response


COUNTS: Final = ("planned", "sent", "sold", "sold_out", "failed", "shed", "late")
COLUMNS: Final = ("p50", "p90", "p99", "p999", "max")
SEGMENTS: Final = "segments"
LOCK_WAITS: Final = "lock-waits"
SALES: Final = "sales"
ONE_LOCK: Final = "global-lock"
_SEGMENTS: Final = {
    "segment": "Segment",
    "opened": "Units at first",
    "taken": "Sold or under way",
    "left": "Left",
    "sold": "Orders reported as sold",
}
_WAITS: Final = {
    "name": "Milliseconds",
    "n": "Orders",
    "p50": "p50",
    "p90": "p90",
    "p99": "p99",
    "p999": "p99.9",
    "max": "Longest",
}
_SALES: Final = {"sale": "Sale", "rate": "Orders a second", "ratio": "Times one lock", "state": "State"}
_TIMES: Final = {"wait": "Wait for the lock", "hold": "Lock held", "service": "Service", "response": "Response"}


def as_json(result: Result) -> dict[str, Any]:
    """Return everything that was measured, without the server's address."""
    tally, rate = result.tally, result.orders_per_s
    return {
        "cell": result.plan.cell.model_dump(mode="json"),
        "cell_id": result.plan.cell.cell_id,
        "processes": len(result.plan.shares),
        "seed": result.plan.seed,
        "seconds": result.plan.seconds,
        "warm_up": result.plan.warm_up,
        "orders_per_s": None if rate is None else round(rate, 3),
        "counts": {name: getattr(tally, name) for name in COUNTS},
        "times_ms": {name: one.model_dump(mode="json") for name, one in tally.times().items() if one.n},
        "checker": result.checker.model_dump(mode="json"),
        "cpu_s": result.cpu_s,
        "broken": list(result.broken),
        "void": list(result.void),
    }


def as_text(result: Result) -> str:
    """Return the results for a terminal: counts, percentiles with their number of samples, and the verdict."""
    tally, plan = result.tally, result.plan
    rate = (
        "none: the promise was broken" if result.broken else "none: void" if result.void else f"{tally.goodput:,.1f}/s"
    )
    loop = "open loop" if plan.cell.loop == "open" else "closed loop"
    counts = "  ".join(f"{name.replace('_', ' ')} {getattr(tally, name):,}" for name in COUNTS)
    lines = [
        f"{plan.cell.cell_id}, {loop}, {len(plan.shares)} process{'es' if len(plan.shares) > 1 else ''}",
        f"orders that hold stock: {rate}",
        counts,
        f"{'ms':<10}{'n':>10}" + "".join(f"{name.replace('p999', 'p99.9'):>12}" for name in COLUMNS),
    ]
    lines += [_row(name, one) for name, one in tally.times().items() if one.n]
    orders = tally.sold + tally.sold_out + tally.failed
    used = {"generator": "generator", "redis": "Redis", "database": "order database"}
    costs = [f"{used[name]} {spent / orders * 1e6:,.0f}" for name, spent in result.cpu_s.items() if spent and orders]
    lines += [f"CPU us an order: {', '.join(costs)}"] if costs else []
    lines += [f"void: {sentence}" for sentence in result.void]
    if result.broken:
        lines += [f"broken: {sentence}" for sentence in result.broken]
    else:
        lines.append(f"kept: {result.checker.sold:,} sold, none oversold, none refused wrongly, none stranded")
    return "\n".join(lines)


def write(result: Result, file: Path) -> None:
    """Write the JSON. Raises InvalidInput."""
    write_whole(file, json.dumps(as_json(result), indent=2) + "\n")


def _row(name: str, times: Percentiles) -> str:
    values = (getattr(times, column) for column in COLUMNS)
    return f"{name:<10}{times.n:>10,}" + "".join(f"{'-' if one is None else f'{one:,.2f}':>12}" for one in values)


def segment_rows(coordinator: SaleCoordinator | None) -> list[dict[str, Any]]:
    """Return a row per segment: units as the server has them, orders by the sellers' latest figures."""
    if coordinator is None:
        return []
    sold = coordinator.tally().by_segment
    left = coordinator.left()
    return [
        {
            "segment": str(segment),
            "opened": opened,
            "taken": opened - left[segment],
            "left": left[segment],
            "sold": sold[segment] if segment < len(sold) else 0,
        }
        for segment, opened in enumerate(coordinator.opened)
        if segment < len(left)
    ]


def wait_rows(coordinator: SaleCoordinator | None) -> list[dict[str, Any]]:
    """Return a row per merged histogram of all sellers; a percentile without enough samples is null."""
    if coordinator is None:
        return []
    times = coordinator.tally().times()
    return [
        {"name": title, **{key: getattr(times[name], key) for key in _WAITS if key != "name"}}
        for name, title in _TIMES.items()
        if times[name].n
    ]


def sale_rows(finished: Sequence[Result], running: SaleCoordinator | None) -> list[dict[str, Any]]:
    """Return a row per sale of this process; its rate is compared with the last sale with one lock, otherwise alike."""
    rows = []
    locked: dict[Cell, float] = {}
    for result in finished:
        cell, rate = _with_one_lock(result.plan.cell), result.orders_per_s
        if rate and result.plan.cell.strategy == ONE_LOCK:
            locked[cell] = rate
        state = "broken" if result.broken else "void" if result.void else "kept"
        rows.append(_sale_row(result.plan.cell, rate, locked.get(cell), state))
    if running is not None and running.result is None:
        rate = running.tally().goodput
        rows.append(_sale_row(running.plan.cell, rate, locked.get(_with_one_lock(running.plan.cell)), "running"))
    return rows


def _sale_row(cell: Cell, rate: float | None, one_lock: float | None, state: str) -> dict[str, Any]:
    is_comparable = rate and one_lock and cell.loop == "closed"  # an open loop has the rate that it was asked for
    ratio = round(rate / one_lock, 2) if is_comparable and rate and one_lock else None
    return {"sale": cell.cell_id, "rate": rate and round(rate, 1), "ratio": ratio, "state": state}


def _with_one_lock(cell: Cell) -> Cell:
    return cell.model_copy(update={"strategy": ONE_LOCK, "segments": 1})


def tables(coordinator: Callable[[], SaleCoordinator | None], finished: Sequence[Result]) -> dict[str, PageTable]:
    """Return the tables of Locust's page, by key."""
    return {
        SEGMENTS: PageTable("Segments", _SEGMENTS, lambda: segment_rows(coordinator())),
        LOCK_WAITS: PageTable("Lock waits", _WAITS, lambda: wait_rows(coordinator())),
        SALES: PageTable("Beside one lock", _SALES, lambda: sale_rows(finished, coordinator())),
    }
