"""Reads the log of a run and counts violations. It trusts neither the locks nor the resource.

1. *Accesses.* An access lasts from its acceptance until it leaves, its connection dies, or a higher token is accepted.
   During that time it must be alone (except readers with the same token, and an owner with itself). Accepted tokens
   only grow. The resource refuses a token lower than the highest accepted one, and nothing else.
2. *Tokens.* Each token belongs to one holder, or to the readers of one phase.
3. *Leases.* Trusted leases exclude each other, also without a fence. So a successor enters while a holder is inside
   only if that holder has outlived its lease.
4. *Liveness.* On every name, some contender keeps entering.
5. *Cancellations.* A task that is cancelled does not go on, and a store that was closed leaves no task and no
   connection.

A trusted period begins when the holder learns that it has the lease. It ends when the holder leaves (which is before
the release) or when the trust ends, whichever is first. A killed holder keeps its lease to the end. All processes share
one monotonic clock, so periods can be compared. The lease begins before the period and ends after it, so overlapping
periods are always overlapping leases.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.proof.torture.events import (
    EXCLUSIVE,
    PERMIT,
    SHARED,
    Began,
    Cancelled,
    Died,
    Ended,
    Entered,
    Event,
    FaultInjected,
    Finished,
    Left,
    Missed,
    PermitsSeen,
    Restarted,
    Wrote,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.proof.torture.options import Kind


@dataclass(slots=True, kw_only=True)
class Verdict:
    """The counts. The first group must be 0."""

    accesses_overlapping: int = 0
    """Accepted accesses that overlap an accepted access which excludes them."""
    tokens_backwards: int = 0
    """Entries accepted with a lower token than an earlier entry."""
    tokens_shared: int = 0
    """Tokens given to two holders."""
    late_accepted: int = 0
    """Writes accepted after a higher token."""
    refused_wrongly: int = 0
    """Entries and writes refused although no higher token had been accepted."""
    leases_overlapping: int = 0
    """Leases that began while one that excludes them was still trusted."""
    permits_exceeded: int = 0
    """How many times the server had more live permits than the semaphore allows."""
    cancellations_lost: int = 0
    """Tasks that were cancelled and went on to their end."""
    tasks_left: int = 0
    """Tasks that ran on after their store was closed."""
    connections_open: int = 0
    """Connections that were open after their store was closed."""

    acquisitions: int = 0
    kills: int = 0
    pauses: int = 0
    cuts: int = 0
    restarts: int = 0
    cancellations: Counter[str] = field(default_factory=Counter)
    """Cancelled tasks, by the moment."""
    away_max: float = 0.0
    """Longest time for which a server was away."""
    late_refused: int = 0
    """Entries and writes after the end of the lease, refused by the fence."""
    late_unfenced: int = 0
    """Writes after the end of the lease that no fence could refuse."""
    permits_seen_max: int = 0
    waited_max: float = 0.0
    gap_max: float = 0.0
    """Longest time without an entry on any name."""
    missed: Counter[str] = field(default_factory=Counter)


MUST_BE_ZERO = (
    "accesses_overlapping",
    "tokens_backwards",
    "tokens_shared",
    "late_accepted",
    "refused_wrongly",
    "leases_overlapping",
    "permits_exceeded",
    "cancellations_lost",
    "tasks_left",
    "connections_open",
)


def check(events: Iterable[Event], kind: Kind) -> Verdict:
    """Count the events and the violations."""
    checker = _Checker(kind)
    for event in events:
        checker.take(event)
    return checker.finish()


@dataclass(slots=True)
class _Access:
    name: str
    token: int | None
    period: TrustedPeriod
    is_over: bool = False
    """A higher token was accepted."""


class _Checker:
    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._verdict = Verdict()
        self._highest: dict[str, int] = {}
        self._inside: dict[str, dict[int, _Access]] = {}
        self._accesses: dict[int, _Access] = {}
        self._periods: dict[str, list[TrustedPeriod]] = {}
        self._users: dict[tuple[str, int], Entered] = {}
        self._last_entry: dict[str, float] = {}

    def take(self, event: Event) -> None:
        verdict = self._verdict
        match event:
            case Entered():
                self._enter(event)
            case Wrote() | Left():
                self._write(event)
            case Died():
                self._gone(event.access)
            case FaultInjected() | Cancelled() | Restarted():
                self._note_fault(event)
            case Missed() | Finished():
                self._count(event)
            case PermitsSeen(living=living):
                verdict.permits_seen_max = max(verdict.permits_seen_max, living)
                verdict.permits_exceeded += living > self._kind.permits
            case Began(at=at, names=names):
                self._last_entry = dict.fromkeys(names, at)
            case Ended(at=at):
                for name in self._last_entry:
                    self._note_entry(name, at)

    def finish(self) -> Verdict:
        for periods in self._periods.values():
            self._verdict.leases_overlapping += len(overlaps(periods, permits=self._kind.permits))
        return self._verdict

    def _count(self, event: Missed | Finished) -> None:
        verdict = self._verdict
        if isinstance(event, Missed):
            verdict.missed[event.reason] += 1
        else:
            verdict.tasks_left += event.tasks
            verdict.connections_open += event.connections

    def _note_fault(self, event: FaultInjected | Cancelled | Restarted) -> None:
        verdict = self._verdict
        match event:
            case Cancelled(moment=moment, is_heeded=is_heeded):
                verdict.cancellations[moment] += 1
                verdict.cancellations_lost += not is_heeded
            case Restarted(seconds=seconds):
                verdict.restarts += 1
                verdict.away_max = max(verdict.away_max, seconds)
            case FaultInjected(deed=deed):
                verdict.kills += deed == "killed"
                verdict.pauses += deed == "paused"
                verdict.cuts += deed == "cut"

    def _enter(self, event: Entered) -> None:
        verdict = self._verdict
        self._check_user(event)
        period = TrustedPeriod(event.holder, event.mode, event.held_since, event.trusted_until)
        self._periods.setdefault(event.name, []).append(period)
        is_late = self._is_late(event.name, event.token)
        if not event.is_accepted:
            period.until = min(period.until, event.at)  # the holder may release it from now on
            verdict.late_refused += is_late
            verdict.refused_wrongly += not is_late
            return
        verdict.acquisitions += 1
        verdict.tokens_backwards += is_late
        verdict.waited_max = max(verdict.waited_max, event.waited)
        self._note_entry(event.name, event.at)
        access = self._accesses[event.access] = _Access(event.name, event.token, period, is_late)
        inside = self._inside.setdefault(event.name, {})
        if self._kind.is_fenced:
            self._raise_fence(event.name, event.token)
            alone = [other.period for other in inside.values() if not other.is_over]
            verdict.accesses_overlapping += excluded(period, alone, permits=1) is not None
        inside[event.access] = access

    def _write(self, event: Wrote | Left) -> None:
        verdict, access = self._verdict, self._accesses[event.access]
        was_trusted = event.at < access.period.until
        access.period.until = max(access.period.until, event.trusted_until)
        if access.is_over:
            verdict.late_accepted += event.is_accepted
            verdict.late_refused += not event.is_accepted
        else:
            verdict.refused_wrongly += not event.is_accepted
        if not self._kind.is_fenced and isinstance(event, Wrote):
            verdict.late_unfenced += not was_trusted and event.at >= access.period.until
        if isinstance(event, Left):
            access.period.until = min(access.period.until, event.at)
            self._gone(event.access)

    def _gone(self, number: int) -> None:
        access = self._accesses.pop(number)
        del self._inside[access.name][number]

    def _is_late(self, name: str, token: int | None) -> bool:
        return self._kind.is_fenced and token is not None and token < self._highest.get(name, 0)

    def _raise_fence(self, name: str, token: int | None) -> None:
        if token is None or token <= self._highest.get(name, 0):
            return
        self._highest[name] = token
        for access in self._inside[name].values():
            access.is_over = access.is_over or (access.token is not None and access.token < token)

    def _check_user(self, event: Entered) -> None:
        if event.token is None:
            return
        first = self._users.setdefault((event.name, event.token), event)
        is_one_phase = first.mode == event.mode != EXCLUSIVE and self._kind.is_fenced
        self._verdict.tokens_shared += first.holder != event.holder and not is_one_phase

    def _note_entry(self, name: str, at: float) -> None:
        if name in self._last_entry:  # else not all contenders have started
            self._verdict.gap_max = max(self._verdict.gap_max, at - self._last_entry[name])
            self._last_entry[name] = at


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
