"""The judge of the tortures: counts violations in logs, journals, ledgers and rows. It shares none with what it judges.

*Locks.* It trusts neither the locks nor the resource.

1. Accesses. An access lasts from its acceptance until it leaves, its connection dies, or a higher token is accepted.
   During that time it must be alone (except readers with the same token, and an owner with itself). Accepted tokens
   only grow. The resource refuses a token lower than the highest accepted one, and nothing else.
2. Tokens. Each token belongs to one holder, or to the readers of one phase.
3. Leases. Trusted leases exclude each other, also without a fence. So a successor enters while a holder is inside
   only if that holder has outlived its lease.
4. Liveness. On every name, some contender keeps entering.
5. Cancellations. A task that is cancelled does not go on, and a store that was closed leaves no task and no connection.

A trusted period begins when the holder learns that it has the lease. It ends when the holder leaves (which is before
the release) or when the trust ends, whichever is first. A killed holder keeps its lease to the end. All processes share
one monotonic clock, so periods can be compared. The lease begins before the period and ends after it, so overlapping
periods are always overlapping leases.

*Orders.* The answers to the submitter are compared with the pool's ledger and the order database. That takes a byte or
two per order, so that a million orders fit into a few megabytes. The ledger's entries are folded again, one by one.

*Durability.* An order is acknowledged once its line is in a journal. What the stock's server still has of it is read
right after the server is back. With an order database, an acknowledged order is lost only if the database does not
have it.

*Rebuilds.* Both sides of a rebuilt sale are compared with what was sold.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from segmented.errors import SegmentedError
from segmented.models import LedgerEntry
from segmented.models.ids import counted, plural
from tests.torture.durability.journal import Ack
from tests.torture.event_log import number_of, order_id
from tests.torture.locks.options import Kind
from tests.torture.locks.resource import (
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

# --- locks ---

LOCKS_MUST_BE_ZERO: Final = {
    "accesses_overlapping": "accepted accesses that overlap",
    "tokens_backwards": "tokens that went back",
    "tokens_shared": "tokens of two holders",
    "late_accepted": "late writes accepted after a newer token",
    "refused_wrongly": "refused although no newer holder had come",
    "leases_overlapping": "leases that overlap while trusted",
    "permits_exceeded": "checks that saw more permits than there are",
    "cancellations_lost": "tasks that were cancelled and went on",
    "tasks_left": "tasks left after their store was closed",
    "connections_open": "connections open after their store was closed",
}


@dataclass(slots=True, kw_only=True)
class LockVerdict:
    """The counts. The first group must be 0: see `LOCKS_MUST_BE_ZERO`."""

    accesses_overlapping: int = 0
    tokens_backwards: int = 0
    tokens_shared: int = 0
    late_accepted: int = 0
    refused_wrongly: int = 0
    leases_overlapping: int = 0
    permits_exceeded: int = 0
    cancellations_lost: int = 0
    tasks_left: int = 0
    connections_open: int = 0

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


def check(events: Iterable[Event], kind: Kind) -> LockVerdict:
    """Count the events and the violations."""
    checker = _LockChecker(kind)
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


class _LockChecker:
    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._verdict = LockVerdict()
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

    def finish(self) -> LockVerdict:
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


# --- orders ---

ACCEPTED: Final = 1
REFUSED_AT_DOOR: Final = 2
MOST: Final = 255
NAMED_MAX: Final = 5
DECISIONS: Final = frozenset({"confirmed", "refused", "cancelled", "expired"})
MUST_BE_ZERO: Final = {
    "lost": "lost (accepted, not decided)",
    "doubled": "doubled (more than one effect)",
    "oversold": "oversold, units",
    "refused_wrongly": "refused wrongly",
    "uncalled": "effects without an accepted order",
}


@dataclass(slots=True)
class Count:
    """A number of orders, and the names of the first few."""

    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """Count one more order."""
        self.count += 1
        if len(self.named) < NAMED_MAX:
            self.named.append(name)


@dataclass(slots=True)
class OrdersVerdict:
    """The result of the check."""

    accepted: int = 0
    confirmed: int = 0
    refused: int = 0
    units_confirmed: int = 0
    units_reserved: int = 0
    units_available: int = 0
    lost: Count = field(default_factory=Count)
    doubled: Count = field(default_factory=Count)
    oversold: Count = field(default_factory=Count)
    refused_wrongly: Count = field(default_factory=Count)
    uncalled: Count = field(default_factory=Count)

    @property
    def counts(self) -> dict[str, int]:
        """Return the counts that must be 0."""
        return {name: getattr(self, name).count for name in MUST_BE_ZERO}

    @property
    def broken(self) -> list[str]:
        """Return one sentence per guarantee that did not hold."""
        sentences = []
        for name, label in MUST_BE_ZERO.items():
            found: Count = getattr(self, name)
            named = f" ({', '.join(found.named)}{', ...' if found.count > len(found.named) else ''})"
            if found.count:
                sentences.append(f"{label}: {found.count:,}, must be 0{named if found.named else ''}")
        return sentences


class OrderChecker:
    """Everything known of each order. Feed it the answers, then the ledger, then the database's rows."""

    def __init__(self, order_count: int, stock: int, *, has_database: bool) -> None:
        """Create a checker for that many orders, with nothing known of them."""
        self._count = order_count
        self._stock = stock
        self._has_database = has_database
        size = order_count + 1
        self._answers = bytearray(size)
        self._quantities = bytearray(size)
        self._reserved = bytearray(size)
        self._confirmed = bytearray(size)
        self._refused = bytearray(size)
        self._given_back = bytearray(size)
        self._rows = bytearray(size)
        self._free_at_door = stock
        """Units less those of accepted orders: there is one submitter, and units are never given back."""
        self.decided_us = array("q", bytes(8 * size))
        """When each order was decided, by the stock server's clock."""
        self._verdict = OrdersVerdict()
        self._available = 0
        self._held = 0
        """Units reserved or confirmed."""
        self._sold = 0
        self._most_held = 0
        self._row_units = 0
        self.answered = 0

    def answer(self, line: str) -> None:
        """Record a line of the submitter's log. Raises SegmentedError for an impossible line."""
        kind, *numbers = line.split(" ")
        try:
            number, quantity = map(int, numbers)
        except ValueError:
            kind, number, quantity = "?", 0, 0
        if kind not in {"a", "f"} or not 1 <= number <= self._count or self._answers[number]:
            raise SegmentedError(f"the submitter's log cannot be counted: {line!r}")
        self.answered += 1
        self._answers[number] = ACCEPTED if kind == "a" else REFUSED_AT_DOOR
        self._quantities[number] = quantity
        if kind == "a":
            self._verdict.accepted += 1
            self._free_at_door -= quantity
        elif self._free_at_door >= quantity:
            self._verdict.refused_wrongly.add(order_id(number))

    @property
    def accepted(self) -> int:
        """How many orders have been accepted so far."""
        return self._verdict.accepted

    def ledger(self, entries: Iterable[LedgerEntry]) -> None:
        """Fold the pool's ledger, from its first entry on."""
        for entry in entries:
            self._enter(entry)

    def rows(self, found: Iterable[tuple[str, str, int]]) -> None:
        """Record the database's rows: order id, state, quantity."""
        for name, state, quantity in found:
            if state != "confirmed":
                continue
            self._row_units += quantity
            number = self._own(name)
            if number:
                _bump(self._rows, number)
                self._check_quantity(number, quantity)

    def verdict(self) -> OrdersVerdict:
        """Compare all sources, and return the result. Call it once."""
        verdict = self._verdict
        for number in range(1, self._count + 1):
            self._draw(number)
        verdict.units_reserved, verdict.units_available = self._held - self._sold, self._available
        verdict.oversold.count = max(0, self._sold - self._stock, self._most_held - self._stock)
        if self._has_database:
            verdict.oversold.count = max(verdict.oversold.count, self._row_units - self._stock)
        return verdict

    def _draw(self, number: int) -> None:
        verdict = self._verdict
        confirmed, refused, rows = self._confirmed[number], self._refused[number], self._rows[number]
        effects = max(confirmed, rows, self._reserved[number] - self._given_back[number])
        if self._answers[number] == REFUSED_AT_DOOR:
            verdict.refused += 1
            if effects:
                verdict.uncalled.add(order_id(number))
            return
        if self._answers[number] != ACCEPTED:
            if effects or refused:
                verdict.uncalled.add(order_id(number))
            return
        is_sold = confirmed > 0 and (rows > 0 or not self._has_database)
        is_refused = refused > 0 and not confirmed and not rows
        verdict.confirmed += is_sold
        verdict.refused += is_refused
        if not is_sold and not is_refused:
            verdict.lost.add(order_id(number))
        if effects > 1 or (refused and effects) or refused > 1:
            verdict.doubled.add(order_id(number))

    def _enter(self, entry: LedgerEntry) -> None:
        quantity = entry.quantity
        if entry.kind == "opened":
            self._available = quantity
            return
        if entry.kind not in DECISIONS and entry.kind != "reserved":
            return
        number = self._own(entry.order_id or "")
        if entry.kind == "refused":
            if self._available >= quantity:
                self._verdict.refused_wrongly.add(entry.order_id or "")
        elif entry.kind == "reserved":
            self._available -= quantity
            self._held += quantity
            self._most_held = max(self._most_held, self._held)
        elif entry.kind == "confirmed":
            self._sold += quantity
            self._verdict.units_confirmed += quantity
        else:
            self._available += quantity
            self._held -= quantity
        if number:
            self._note(number, entry)

    def _note(self, number: int, entry: LedgerEntry) -> None:
        self._check_quantity(number, entry.quantity)
        if entry.kind == "reserved":
            _bump(self._reserved, number)
            return
        is_held = self._reserved[number] > self._given_back[number]
        if entry.kind != "refused" and entry.quantity and not is_held:  # the order was never reserved
            self._verdict.uncalled.add(entry.order_id or "")
        _bump({"confirmed": self._confirmed, "refused": self._refused}.get(entry.kind, self._given_back), number)
        if not self.decided_us[number]:
            self.decided_us[number] = entry.at_us

    def _own(self, name: str) -> int:
        number = number_of(name)
        if 1 <= number <= self._count:
            return number
        self._verdict.uncalled.add(name)
        return 0

    def _check_quantity(self, number: int, quantity: int) -> None:
        if self._answers[number] and self._quantities[number] != quantity:
            self._verdict.uncalled.add(order_id(number))


def _bump(counts: bytearray, number: int) -> None:
    counts[number] = min(MOST, counts[number] + 1)


# --- durability ---

FAILED_SECONDS_MAX: Final = 20.0
"""A call to servers that are away fails after its own timeout and the store's patience, each for every step of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The facts of a trial, seen from outside of the pool. Times are monotonic seconds."""

    stock: int
    fault_at: float
    back_at: float
    """When a server answered at the address again."""
    acks: Sequence[Ack]
    noticed: Sequence[float]
    """When processes learned that changes are lost."""
    kept: Collection[str]
    """Orders that the stock's server had as confirmed when it was back."""
    rows: Mapping[str, int] | None
    """Units by order id of the confirmed rows of the order database, at the end; None without one."""
    held: int = 0
    """Units that are still reserved at the end."""
    undecided: Collection[str] = ()
    """Orders that were submitted, and that no worker finished in time."""
    failed_s_max: float = 0.0
    """Seconds that the longest failed call took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialVerdict:
    """The verdict on a trial."""

    acknowledged: int
    """Orders acknowledged before the fault."""
    forgotten: int
    """Of these, how many the stock's server had not any more."""
    lost: int
    """Of all acknowledged orders, how many nothing but the customer knows of."""
    sold_twice: int
    """Units promised beyond the stock."""
    noticed_s: float | None
    """Seconds from the fault until a process learned of the loss; None if none did."""
    again_s: float | None
    """Seconds from the fault until an order was acknowledged after the loss was noticed, if there was one, and a server
    was back; None if none was.
    """
    unsold: int
    """With an order database: units that are neither sold nor reserved at the end."""
    broken: tuple[str, ...]
    """Guarantees that did not hold."""

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as JSON."""
        return asdict(self) | {"broken": list(self.broken)}


def judge(evidence: Evidence) -> TrialVerdict:
    """Count what was lost, what was sold twice, and when it was noticed."""
    before = [ack for ack in evidence.acks if ack.at < evidence.back_at]
    forgotten = sum(ack.order_id not in evidence.kept for ack in before)
    rows = evidence.rows
    lost = forgotten if rows is None else sum(ack.order_id not in rows for ack in evidence.acks)
    promised = {ack.order_id: ack.units for ack in evidence.acks} | dict(rows or {})
    twice = max(0, sum(promised.values()) - evidence.stock)
    noticed = [at - evidence.fault_at for at in evidence.noticed if at >= evidence.fault_at]
    since = max(evidence.back_at, min(noticed, default=0.0) + evidence.fault_at)
    again = [ack.at - evidence.fault_at for ack in evidence.acks if ack.at >= since]
    unsold = 0 if rows is None else evidence.stock - sum(rows.values()) - evidence.held
    verdict = TrialVerdict(
        acknowledged=len(before),
        forgotten=forgotten,
        lost=lost,
        sold_twice=twice,
        noticed_s=min(noticed, default=None),
        again_s=min(again, default=None),
        unsold=unsold,
        broken=(),
    )
    found = tuple(_broken_in(evidence, verdict))
    return TrialVerdict(**{**asdict(verdict), "broken": found})


def _broken_in(evidence: Evidence, verdict: TrialVerdict) -> list[str]:
    found = []
    if (verdict.forgotten or verdict.lost) and verdict.noticed_s is None:
        orders = counted(max(verdict.forgotten, verdict.lost), "order", "was")
        found.append(f"{orders} forgotten, and no process noticed it")
    doubled = [order_id for order_id, count in Counter(ack.order_id for ack in evidence.acks).items() if count > 1]
    if doubled:
        found.append(f"{counted(len(doubled), 'order', 'was')} acknowledged twice, such as {doubled[0]}")
    if evidence.undecided:
        orders = counted(len(evidence.undecided), "submitted order", "was")
        found.append(f"{orders} not finished, such as {min(evidence.undecided)}")
    if evidence.failed_s_max > FAILED_SECONDS_MAX:
        found.append(f"a call failed only after {evidence.failed_s_max:.1f} s")
    if evidence.rows is None:
        return found
    if verdict.lost:
        found.append(f"{counted(verdict.lost, 'acknowledged order', 'is')} not in the order database")
    if verdict.sold_twice:
        units = counted(verdict.sold_twice, "unit", "was")
        found.append(f"{units} sold twice although an order database decides")
    if verdict.unsold > 0:
        found.append(f"of {evidence.stock} units, {verdict.unsold} {plural(verdict.unsold, 'was')} not sold")
    return found
