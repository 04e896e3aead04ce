"""The page of the comparison of schedulers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.conformance.common import table

if TYPE_CHECKING:
    from collections.abc import Mapping

HEAD: Final = """# Beat schedulers under faults, compared

The same faults meet two schedulers of which several may run: `segmented.celery.beat` and celery-redbeat. Each case
starts its own `celery beat` processes and server, and counts what each of them sends. One command counts and writes
this page:

```console
$ .venv/bin/python -m tests.conformance beat compare
```

It creates an environment under `.peers/` (pinned in `tests/conformance/beat/requirements-celery-redbeat.txt`; this
needs a package index) and takes about four minutes.

"""


def render(record: Mapping[str, Any]) -> str:
    """Return the page of a comparison."""
    rows = record["rows"]
    names = list(rows[0]["found"])
    found = {row["id"]: row["found"] for row in rows}

    def cell(place: int, row: str) -> str:
        return "✓" if found[row][names[place]]["holds"] else "✗"

    totals = [f"{sum(row['found'][name]['holds'] for row in rows)} of {len(rows)}" for name in names]
    parts = [HEAD, "## Results\n\n", table(rows, names, cell, "**✓**", *totals), "\n## What was counted\n\n"]
    parts += [
        f"- **{row['id']}** " + "; ".join(f"{name}: {row['found'][name]['counted']}" for name in names) + "\n"
        for row in rows
    ]
    said = record["conditions"]
    versions = ", ".join(said["versions"])
    parts.append(
        "\nIn the first three cases both have a lease of three seconds and look every second. The others use the "
        "defaults: celery-redbeat's lock lasts 25 minutes, and a waiting beat asks for it every 5 minutes.\n"
        f"\nRun on {said['date']} at commit `{said['commit']}`, {said['cores']} cores, {said['system']}; {versions}.\n"
    )
    return "".join(parts)
