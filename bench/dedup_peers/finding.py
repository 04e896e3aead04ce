"""The finding of a case: whether it held, and the evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.dedup_peers.context import ORDER
from bench.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.dedup_peers.context import BenchContext
    from bench.dedup_peers.journal import Entry


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of a case."""

    held: bool
    evidence: str
    """The evidence in a few words, without a full stop."""


def at_once(entries: Sequence[Entry]) -> int:
    """Return the maximum number of concurrent runs. A run that never ended counts to the end."""
    moments = sorted(
        (entry.at, {"began": 1, "ended": -1, "retry": -1}[entry.event])
        for entry in entries
        if entry.event in {"began", "ended", "retry"}
    )
    under_way = most = 0
    for _, change in moments:
        under_way += change
        most = max(most, under_way)
    return most


def one_effect(context: BenchContext, more: str = "") -> Finding:
    """Return whether the order had exactly one effect, with the evidence."""
    effects = context.effects()
    evidence = f"{counted(effects, 'effect')} of 1 order"
    return Finding(effects == 1, f"{evidence}, {more}" if more else evidence)


def one_run(context: BenchContext) -> Finding:
    """Return whether the order ran exactly once and had its effect, with the evidence."""
    runs = context.seen("began", ORDER)
    most = at_once(context.of_order())
    evidence = f"{counted(len(runs), 'run')} of 1 order" + (f", {most} at the same time" if most > 1 else "")
    return Finding(len(runs) == 1 and context.effects() == 1, evidence)
