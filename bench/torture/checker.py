"""Reads the log of a torture and counts what must not be: a judge that trusts neither the locks nor the resource.

1. *Accesses.* From its acceptance until it leaves, its connection dies, or a higher token is accepted, an access must
   be alone (readers may be with readers of their token, an owner with itself). Accepted tokens only grow. What comes
   with a lower token than the highest accepted is refused, and nothing else is.
2. *Tokens.* Each belongs to one holder, or to the readers of one phase.
3. *Leases.* While they are trusted they exclude each other, also where there is no fence. So a holder inside is
   succeeded only when it has overslept.
4. *Liveness.* On every name somebody gets in, again and again.

Leases are judged by stays. A stay reaches from the moment in which its holder knew that it had the lease to its leaving
(which is before the release) or to the end of its trust, whichever is first. A holder that was killed keeps its lease
to the end. All processes share one monotonic clock, so stays can be compared. The lease really begins before the stay
and ends after it, so that overlapping stays are always overlapping leases.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.torture.events import (
    EXCLUSIVE,
    PERMIT,
    SHARED,
    Began,
    Died,
    Ended,
    Entered,
    Event,
    Left,
    Missed,
    PermitsSeen,
    Tormented,
    Wrote,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.torture.kinds import Kind


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What was counted. Those above the line must be 0."""

    accesses_overlapping: int = 0
    """Accepted accesses beside an accepted one that excludes them."""
    tokens_backwards: int = 0
    """Entries that were accepted with a lower token than one before."""
    tokens_shared: int = 0
    """Tokens that two holders had."""
    late_accepted: int = 0
    """Writes that were accepted after a higher token."""
    refused_wrongly: int = 0
    """Entries and writes that were refused though nobody newer had come."""
    leases_overlapping: int = 0
    """Leases that began while one that excludes them was still trusted."""
    permits_exceeded: int = 0
    """Times at which the server knew of more living permits than there are."""

    acquisitions: int = 0
    kills: int = 0
    pauses: int = 0
    cuts: int = 0
    late_refused: int = 0
    """Entries and writes of holders that overslept, refused by the fence."""
    late_unfenced: int = 0
    """Writes of holders that overslept, which nothing could refuse."""
    permits_seen_max: int = 0
    waited_max: float = 0.0
    gap_max: float = 0.0
    """Longest time in which nobody got in on some name."""
    missed: Counter[str] = field(default_factory=Counter)


MUST_BE_ZERO = (
    "accesses_overlapping",
    "tokens_backwards",
    "tokens_shared",
    "late_accepted",
    "refused_wrongly",
    "leases_overlapping",
    "permits_exceeded",
)


def check(events: Iterable[Event], kind: Kind) -> Verdict:
    """Count what happened, and what must not have happened."""
    checker = _Checker(kind)
    for event in events:
        checker.take(event)
    return checker.finish()


@dataclass(slots=True)
class _Access:
    name: str
    token: int | None
    stay: Stay
    is_over: bool = False
    """A higher token has come."""


class _Checker:
    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._verdict = Verdict()
        self._highest: dict[str, int] = {}
        self._inside: dict[str, dict[int, _Access]] = {}
        self._accesses: dict[int, _Access] = {}
        self._stays: dict[str, list[Stay]] = {}
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
            case Tormented(deed=deed):
                verdict.kills += deed == "killed"
                verdict.pauses += deed == "paused"
                verdict.cuts += deed == "cut"
            case Missed(reason=reason):
                verdict.missed[reason] += 1
            case PermitsSeen(living=living):
                verdict.permits_seen_max = max(verdict.permits_seen_max, living)
                verdict.permits_exceeded += living > self._kind.permits
            case Began(at=at, names=names):
                self._last_entry = dict.fromkeys(names, at)
            case Ended(at=at):
                for name in self._last_entry:
                    self._note_entry(name, at)

    def finish(self) -> Verdict:
        for stays in self._stays.values():
            self._verdict.leases_overlapping += len(overlaps(stays, permits=self._kind.permits))
        return self._verdict

    def _enter(self, event: Entered) -> None:
        verdict = self._verdict
        self._check_user(event)
        stay = Stay(event.holder, event.mode, event.held_since, event.trusted_until)
        self._stays.setdefault(event.name, []).append(stay)
        is_late = self._is_late(event.name, event.token)
        if not event.is_accepted:
            stay.until = min(stay.until, event.at)  # from now on its holder may release it
            verdict.late_refused += is_late
            verdict.refused_wrongly += not is_late
            return
        verdict.acquisitions += 1
        verdict.tokens_backwards += is_late
        verdict.waited_max = max(verdict.waited_max, event.waited)
        self._note_entry(event.name, event.at)
        access = self._accesses[event.access] = _Access(event.name, event.token, stay, is_late)
        inside = self._inside.setdefault(event.name, {})
        if self._kind.is_fenced:
            self._raise_fence(event.name, event.token)
            alone = [other.stay for other in inside.values() if not other.is_over]
            verdict.accesses_overlapping += excluded(stay, alone, permits=1) is not None
        inside[event.access] = access

    def _write(self, event: Wrote | Left) -> None:
        verdict, access = self._verdict, self._accesses[event.access]
        was_trusted = event.at < access.stay.until
        access.stay.until = max(access.stay.until, event.trusted_until)
        if access.is_over:
            verdict.late_accepted += event.is_accepted
            verdict.late_refused += not event.is_accepted
        else:
            verdict.refused_wrongly += not event.is_accepted
        if not self._kind.is_fenced and isinstance(event, Wrote):
            verdict.late_unfenced += not was_trusted and event.at >= access.stay.until
        if isinstance(event, Left):
            access.stay.until = min(access.stay.until, event.at)
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
        if name in self._last_entry:  # else not all contenders are there yet
            self._verdict.gap_max = max(self._verdict.gap_max, at - self._last_entry[name])
            self._last_entry[name] = at


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
