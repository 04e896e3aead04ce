"""Compares a shop's answers to its buyers with the records of its pool."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from segmented.models import OrderRecord

NAMED: Final = 3
"""Orders that a sentence names."""
HOLDS_UNITS: Final = ("reserved", "confirmed")


@dataclass(slots=True)
class Answers:
    """Order ids by the shop's answer."""

    sold: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def take(self) -> dict[str, list[str]]:
        """Return the ids since the last call, as a worker sends them to its master."""
        taken = {"sold": self.sold, "refused": self.refused, "unknown": self.unknown}
        self.sold, self.refused, self.unknown = [], [], []
        return taken

    def add(self, taken: Mapping[str, Sequence[str]]) -> None:
        """Add the ids of another process."""
        self.sold += taken.get("sold", ())
        self.refused += taken.get("refused", ())
        self.unknown += taken.get("unknown", ())

    def __str__(self) -> str:
        """Return the counts."""
        return f"{len(self.sold):,} sold, {len(self.refused):,} refused, {len(self.unknown):,} unknown"


def broken_books(answers: Answers, orders: Iterable[OrderRecord]) -> list[str]:
    """Return a sentence for each promise that the shop broke: an order that it called sold, or not sold, wrongly."""
    states = {one.order_id: one.state for one in orders}
    sold_twice = len(answers.sold) - len(set(answers.sold))
    unsold = [one for one in answers.sold if states.get(one) != "confirmed"]
    held = [one for one in answers.refused if states.get(one) in HOLDS_UNITS]
    broken = [f"{sold_twice:,} order ids were answered as sold more than once"] if sold_twice else []
    if unsold:
        broken.append(
            f"{len(unsold):,} orders were answered as sold, and the pool has not sold them: {_named(unsold, states)}"
        )
    if held:
        broken.append(f"{len(held):,} orders were refused, and hold units of the pool: {_named(held, states)}")
    return broken


def _named(ids: Sequence[str], states: Mapping[str, str]) -> str:
    named = ", ".join(f"{one} ({states.get(one, 'unknown to it')})" for one in ids[:NAMED])
    return named + (", ..." if len(ids) > NAMED else "")
