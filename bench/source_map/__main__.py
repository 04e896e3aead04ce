"""`python -m bench.source_map CHARTS`: writes source-lock.svg and source-order.svg, and prints the counts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.source_map.picture import count, picture
from bench.source_map.steps import traces

if TYPE_CHECKING:
    from bench.source_map.trace import Trace

HEADS: Final = {
    "lock": "A lock, from acquire to the script",
    "order": "An order, from reserve or submit to SQL",
}
MOVES_MAX: Final = 30
"""The goal for the calls of HAVE_A_GOAL."""
HAVE_A_GOAL: Final = frozenset({"Lock.acquire", "Pool.grant"})


def drawn(found: dict[str, list[Trace]]) -> dict[str, str]:
    """Return each picture by the name of its file."""
    return {f"source-{name}.svg": picture(HEADS[name], traced) for name, traced in found.items()}


def counts(found: dict[str, list[Trace]]) -> list[str]:
    """Return a line for each call."""
    return [f"{one.title}: {count(one)}{_goal(one.title)}" for traced in found.values() for one in traced]


def _goal(title: str) -> str:
    return f" (goal: at most {MOVES_MAX})" if title in HAVE_A_GOAL else ""


def main(charts: Path) -> None:
    """Write the pictures, and print the counts."""
    found = traces()
    for name, text in drawn(found).items():
        (charts / name).write_text(text, encoding="utf-8")
    sys.stdout.write("\n".join([*counts(found), ""]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
