"""What became of the orders of one envelope."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from segmented.models import Settled


@dataclass(slots=True)
class EnvelopeReport:
    """The outcomes of the orders of one envelope."""

    settled: list[Settled] = field(default_factory=list)
    """Decided, now or before."""
    in_hand: list[str] = field(default_factory=list)
    """Orders that another worker is processing."""
    put_off: dict[str, str] = field(default_factory=dict)
    """Order id -> why it is tried again later."""
    declined: dict[str, str] = field(default_factory=dict)
    """Order id -> why its step declined it. It is settled, too: cancelled."""
    dead: list[str] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)
    """Begun before and not finished: published again in smaller envelopes."""
    unknown: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Return the number of orders of each kind, without empty kinds."""
        return {name: len(found) for name in KINDS if (found := getattr(self, name))}

    def summary(self) -> str:
        """Return the counts as text, such as "98 settled, 2 put_off": a task's result, which Celery writes in its log.

        Celery takes five times as long to write an object.
        """
        return ", ".join([f"{len(found)} {name}" for name in KINDS if (found := getattr(self, name))])


KINDS: Final = tuple(one.name for one in fields(EnvelopeReport))
"""Names of the kinds, in the order of the fields."""
