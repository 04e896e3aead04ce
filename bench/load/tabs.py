"""Two tabs in Locust's own page: units by segment, and how long orders wait for a lock and hold it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from flask import Blueprint, Response, jsonify, request

if TYPE_CHECKING:
    from collections.abc import Callable

    from locust.web import WebUI

    from bench.load.coordinator import SaleCoordinator

SEGMENTS: Final = "segments"
LOCK_WAITS: Final = "lock-waits"
_TABLES: Final[dict[str, list[tuple[str, str]]]] = {
    SEGMENTS: [
        ("segment", "Segment"),
        ("opened", "Units at first"),
        ("taken", "Sold or under way"),
        ("left", "Left"),
        ("sold", "Orders reported as sold"),
    ],
    LOCK_WAITS: [
        ("name", "Milliseconds"),
        ("n", "Orders"),
        ("p50", "p50"),
        ("p90", "p90"),
        ("p99", "p99"),
        ("p999", "p99.9"),
        ("max", "Longest"),
    ],
}
_TITLES: Final = {SEGMENTS: "Segments", LOCK_WAITS: "Lock waits"}
_TIMES: Final = {"wait": "Wait for the lock", "hold": "Lock held", "service": "Service", "response": "Response"}


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
        {"name": title, **{key: getattr(times[name], key) for key, _ in _TABLES[LOCK_WAITS][1:]}}
        for name, title in _TIMES.items()
        if times[name].n
    ]


def add_tabs(web_ui: WebUI, coordinator: Callable[[], SaleCoordinator | None]) -> None:
    """Add both tables to the page: as tabs, below the page's statistics, and as JSON."""
    web_ui.template_args["extended_tabs"] = [{"title": _TITLES[key], "key": key} for key in _TABLES]
    web_ui.template_args["extended_tables"] = [
        {"key": key, "structure": [{"key": name, "title": title} for name, title in columns]}
        for key, columns in _TABLES.items()
    ]
    rows = {SEGMENTS: segment_rows, LOCK_WAITS: wait_rows}
    app = web_ui.app
    if app is None:
        return
    blueprint = Blueprint(
        "segmented", __name__, url_prefix=getattr(web_ui.environment.parsed_options, "web_base_path", "")
    )

    @blueprint.route("/segmented/<key>")
    @web_ui.auth_required_if_enabled  # type: ignore[untyped-decorator]  # Locust has no types for it
    def table(key: str) -> Response:
        if key not in rows:
            return Response(f"there is no table {key}", status=404)
        return jsonify(rows[key](coordinator()))

    app.register_blueprint(blueprint)

    @app.after_request
    def extend(response: Response) -> Response:
        if request.path.endswith("/stats/requests") and response.is_json:
            said = {
                **response.get_json(),
                "extended_stats": [{"key": key, "data": rows[key](coordinator())} for key in rows],
            }
            response.set_data(json.dumps(said))
        return response
