"""Do leases ever overlap while they may be trusted? The mutual exclusion itself, without any help by a fence.

A stay reaches from the moment in which its holder knew that it had the lease to its leaving (which is before the
release) or to the end of its trust, whichever is first. A holder that was killed keeps its lease to the end. All
processes share one monotonic clock, so stays can be compared. The lease really begins before the stay and ends after
it, so that overlapping stays are always overlapping leases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.torture.events import PERMIT, SHARED

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True)
class Stay:
    """One lease, as long as it was trusted."""

    holder: str
    mode: str
    since: float
    until: float


def overlaps(stays: Iterable[Stay], *, permits: int) -> list[tuple[Stay, Stay]]:
    """Return pairs of stays of one name that must not have been at the same time, each newcomer once."""
    found: list[tuple[Stay, Stay]] = []
    inside: list[Stay] = []
    for stay in sorted(stays, key=lambda stay: stay.since):
        if stay.until <= stay.since:  # it was no longer trusted when it was handed over
            continue
        inside = [other for other in inside if other.until > stay.since]
        in_the_way = excluded(stay, inside, permits=permits)
        if in_the_way is not None:
            found.append((in_the_way, stay))
        inside.append(stay)
    return found


def excluded(stay: Stay, inside: Iterable[Stay], *, permits: int) -> Stay | None:
    """Return one of `inside` beside whom `stay` may not be, if there is one. An owner may be there twice."""
    others = [other for other in inside if other.holder != stay.holder]
    if stay.mode == PERMIT:
        return others[0] if len(others) >= permits else None
    if stay.mode == SHARED:
        others = [other for other in others if other.mode != SHARED]
    return others[0] if others else None
