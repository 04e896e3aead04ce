"""`python -m bench.source_map CHARTS`: writes source-lock.svg and source-order.svg, and prints the counts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.source_map.picture import count, picture
from bench.source_map.steps import walks

if TYPE_CHECKING:
    from bench.source_map.walk import Walk

HEADS: Final = {
    "lock": "A lock, from acquire to the script",
    "order": "An order, from reserve or submit to SQL",
}
GOALS: Final = {"Lock.acquire": 30, "Pool.grant": 30}
"""Moves that are allowed, by walk."""


def drawn(found: dict[str, list[Walk]]) -> dict[str, str]:
    """Return each picture by the name of its file."""
    return {f"source-{name}.svg": picture(HEADS[name], ways) for name, ways in found.items()}


def counts(found: dict[str, list[Walk]]) -> list[str]:
    """Return a line for each walk."""
    goals = {title: f" (goal: at most {most})" for title, most in GOALS.items()}
    return [f"{walk.title}: {count(walk)}{goals.get(walk.title, '')}" for ways in found.values() for walk in ways]


def main(charts: Path) -> None:
    """Write the pictures, and print the counts."""
    found = walks()
    for name, text in drawn(found).items():
        (charts / name).write_text(text, encoding="utf-8")
    sys.stdout.write("\n".join([*counts(found), ""]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
