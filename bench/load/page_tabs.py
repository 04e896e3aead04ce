"""Tables of our own on Locust's page: as tabs beside its statistics, and as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Response, jsonify, request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from locust.web import WebUI


@dataclass(frozen=True, slots=True)
class Table:
    """A tab."""

    title: str
    columns: Mapping[str, str]
    """Titles by the key of a row."""
    rows: Callable[[], Sequence[Mapping[str, Any]]]
    """Called at each refresh of the page, about every two seconds."""


def add_tabs(web_ui: WebUI, tables: Mapping[str, Table]) -> None:
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
