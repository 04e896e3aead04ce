"""One round of a contender, drawn at random: a name, the time that it waits, and the time that it holds the lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.proof.torture.contenders import LockRequest
from segmented.errors import AcquireTimeout, LeaseLost, PartlyReleased, StoreUnavailable

if TYPE_CHECKING:
    from random import Random

    from bench.proof.torture.processes import Assignment

MOMENT: Final = 0.02
"""Maximum seconds of a short hold."""
RENEWED: Final = 0.04
"""Share of holders that hold longer than the lease, and renew."""
OVERSLEPT: Final = 0.06
"""Share of holders that hold longer than the lease, and do not renew."""
TRIES: Final = 0.1
"""Share of contenders that do not wait."""
IMPATIENT: Final = 0.1
"""Share of contenders with a short timeout."""
IMPATIENT_SECONDS: Final = 0.05
PATIENT_SECONDS: Final = 10.0

NOT_ACQUIRED: Final = (AcquireTimeout, LeaseLost, StoreUnavailable)
"""Errors of an acquire that a fault may cause."""
NOT_RELEASED: Final = (LeaseLost, StoreUnavailable, PartlyReleased)
"""Errors of a release that a fault may cause: the lease expires on its own, or has expired."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a contender."""

    request: LockRequest
    hold_s: float


def draw_round(random: Random, assignment: Assignment) -> Round:
    """Draw the next round of a contender."""
    ttl, roll = assignment.ttl, random.random()
    is_renewed = roll < RENEWED
    is_overslept = not is_renewed and roll < RENEWED + OVERSLEPT
    hold_s = random.uniform(0.0, MOMENT)
    if is_renewed:
        hold_s = ttl * random.uniform(0.8, 1.6)
    elif is_overslept:
        hold_s = ttl * random.uniform(1.2, 1.8)
    name = random.choice(assignment.names)
    return Round(LockRequest(assignment.names, name, ttl, is_renewed, _patience(random)), hold_s)


def reason_of(error: Exception) -> str:
    """Return why a contender did not get the lock: `timeout`, `late` or `unavailable`."""
    return {AcquireTimeout: "timeout", LeaseLost: "late"}.get(type(error), "unavailable")


def _patience(random: Random) -> float:
    roll = random.random()
    if roll < TRIES:
        return 0.0
    return IMPATIENT_SECONDS if roll < TRIES + IMPATIENT else PATIENT_SECONDS
