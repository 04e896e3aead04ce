"""Finds leases that overlap while they are trusted: mutual exclusion itself, without the help of a fence.

A trusted period begins when the holder learns that it has the lease. It ends when the holder leaves (which is before
the release) or when the trust ends, whichever is first. A killed holder keeps its lease to the end. All processes share
one monotonic clock, so periods can be compared. The lease begins before the period and ends after it, so overlapping
periods are always overlapping leases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.torture.events import PERMIT, SHARED

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True)
class TrustedPeriod:
    """The time during which one lease was trusted."""

    holder: str
    mode: str
    since: float
    until: float


def overlaps(periods: Iterable[TrustedPeriod], *, permits: int) -> list[tuple[TrustedPeriod, TrustedPeriod]]:
    """Return pairs of periods of one name that must not overlap, each later one once."""
    found: list[tuple[TrustedPeriod, TrustedPeriod]] = []
    inside: list[TrustedPeriod] = []
    for period in sorted(periods, key=lambda period: period.since):
        if period.until <= period.since:  # its trust had ended before the holder got it
            continue
        inside = [other for other in inside if other.until > period.since]
        in_the_way = excluded(period, inside, permits=permits)
        if in_the_way is not None:
            found.append((in_the_way, period))
        inside.append(period)
    return found


def excluded(period: TrustedPeriod, inside: Iterable[TrustedPeriod], *, permits: int) -> TrustedPeriod | None:
    """Return a period of `inside` that excludes `period`, if any. One owner may be inside twice."""
    others = [other for other in inside if other.holder != period.holder]
    if period.mode == PERMIT:
        return others[0] if len(others) >= permits else None
    if period.mode == SHARED:
        others = [other for other in others if other.mode != SHARED]
    return others[0] if others else None
