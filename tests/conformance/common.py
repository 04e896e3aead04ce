"""Common parts of the comparisons: chosen names, the conditions, and the table of contenders by rows."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bench.conditions import commit, core_count, cpu_model
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def chosen(names: Sequence[str], all_names: Sequence[str], what: str) -> list[str]:
    """Return the given names in the order of all names, or all if none is given. Raises InvalidInput."""
    unknown = [name for name in names if name not in all_names]
    if unknown:
        message = f"there is no {what} {unknown[0]!r}: {', '.join(all_names)}"
        raise InvalidInput(message)
    return [name for name in all_names if not names or name in names]


def conditions(more: Mapping[str, Any]) -> dict[str, Any]:
    """Return when, where and with which commit a comparison runs, and `more`."""
    machine = {"cores": core_count(), "cpu_model": cpu_model(), "system": platform.platform()}
    return {"date": datetime.now(UTC).date().isoformat(), "commit": commit(), **more, **machine}


def table(
    rows: Sequence[Mapping[str, str]], heads: Sequence[str], cell: Callable[[int, str], str], *totals: str
) -> str:
    """Return a Markdown table: a line per row, a column per contender; `totals` is the last line with its name."""
    lines = [
        "| | what must hold | " + " | ".join(heads) + " |",
        "| --- | --- |" + " --- |" * len(heads),
    ]
    for row in rows:
        cells = [cell(place, row["id"]) for place in range(len(heads))]
        lines.append(f"| {row['id']} | {row['must_hold']} | " + " | ".join(cells) + " |")
    lines.append("| | " + " | ".join(totals) + " |")
    return "\n".join(lines) + "\n"
