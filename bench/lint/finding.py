"""The verdict of a rule on a results file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Outcome = Literal["holds", "broken", "not applicable"]
NAMED_MAX: Final = 3
"""Maximum number of runs or cells that a sentence names; the others are counted."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome, and one sentence of evidence."""

    outcome: Outcome
    evidence: str


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """A rule and its verdict."""

    rule: str
    """`R1` to `R24`."""
    title: str
    outcome: Outcome
    evidence: str


def holds(evidence: str) -> Verdict:
    """Return the verdict that the rule holds."""
    return Verdict("holds", evidence)


def broken(evidence: str) -> Verdict:
    """Return the verdict that the rule is broken, and where."""
    return Verdict("broken", evidence)


def not_applicable(evidence: str) -> Verdict:
    """Return the verdict that the file has nothing that the rule applies to."""
    return Verdict("not applicable", evidence)


def named(found: Iterable[object]) -> str:
    """Return the first names, and the number of the others."""
    each = [str(one) for one in found]
    rest = len(each) - NAMED_MAX
    return ", ".join(each[:NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")
