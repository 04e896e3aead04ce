"""The audit of a pool in shards, and its repair: of each shard, and of the transfers between them.

The sources are read before the targets: a transfer that a source knows to have arrived must be in the target then.
After that the sources are read again: a target cannot have received more than they have sent by now. So continuing
sales and pending transfers cause no false alarm.

A target of a repair receives only the difference to what the source has sent it in total, so repeated receipts count
once.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from segmented import protocol as op
from segmented.errors import PoolDrifted
from segmented.models import PoolState, ShardDirectory, ShardedState, Transfer
from segmented.models.ids import plural
from segmented.models.shards import note_of, units_away
from segmented.plans import Plan, perform
from segmented.stock.audit import AuditReport, Drift, audit_plan
from segmented.stock.repair import Repair, repair_plan
from segmented.stock.sharded.opening import all_plan, summed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from segmented.stock.sharded.gathering import Gathering


@dataclass(frozen=True, slots=True)
class ShardedAuditReport:
    """The audit's findings in every shard, and in the transfers between them."""

    state: ShardedState
    """The sum of the shards, each as of its own sequence number."""
    shards: tuple[AuditReport, ...]
    transfers: tuple[Drift, ...]
    away: int
    """Units on the way between shards: the next gathering order, or `finish_transfers`, brings them in."""

    @property
    def drift(self) -> tuple[Drift, ...]:
        """The drifts of the shards, in their order, then those between them."""
        return (*(one for report in self.shards for one in report.drift), *self.transfers)

    @property
    def drift_count(self) -> int:
        """Number of drifts, including those that are not named."""
        return sum(report.drift_count for report in self.shards) + len(self.transfers)

    @property
    def refused_wrongly(self) -> int:
        """Recorded refusals although the order's own shard had enough free units."""
        return sum(report.refused_wrongly for report in self.shards)

    @property
    def oversold(self) -> int:
        """Units confirmed and reserved beyond all units ever added, or beyond those that a shard ever had."""
        state = self.state
        in_all = 0 if state.unreadable else max(0, state.confirmed + state.reserved - state.stocked)
        return max(in_all, sum(report.oversold for report in self.shards))

    @property
    def by_kind(self) -> Mapping[str, int]:
        """Number of drifts of each kind found."""
        found: Counter[str] = Counter(one.kind for one in self.transfers)
        for report in self.shards:
            found.update(report.by_kind)
        return dict(found)

    @property
    def unread(self) -> tuple[str, ...]:
        """Other pools that did not answer, and why, over all shards; whatever depends on them was not judged."""
        return tuple(why for report in self.shards for why in report.unread)

    @property
    def is_clean(self) -> bool:
        """Return whether all numbers follow from the ledgers: nothing is oversold, refused wrongly or lost."""
        return not self.transfers and all(report.is_clean for report in self.shards)


def sharded_audit_plan(directory: ShardDirectory) -> Plan[ShardedAuditReport]:
    """Audit every shard, then the transfers between them."""
    reports: list[AuditReport] = []
    for shard in directory.shards:
        report, _ = yield from audit_plan(shard)
        reports.append(report)
    before = yield from all_plan(op.ReadPool(shard) for shard in directory.shards)
    between = yield from all_plan(op.ReadPool(shard) for shard in directory.shards)
    after = yield from all_plan(op.ReadPool(shard) for shard in directory.shards)
    drift = tuple(_transfers_drift(before, between, after))
    state = summed(directory, [report.state for report in reports])
    return ShardedAuditReport(state, tuple(reports), drift, sum(units_away(before, between)))


def _kept(states: list[PoolState], kind: str) -> dict[tuple[int, int], Transfer]:
    """Return the shards' notes of transfers, by their own number and the other's."""
    return {
        (number, one.other): one for number, state in enumerate(states) for one in state.transfers if one.kind == kind
    }


def _transfers_drift(before: list[PoolState], between: list[PoolState], after: list[PoolState]) -> Iterator[Drift]:
    sent, away, received = _kept(before, "sent"), _kept(before, "away"), _kept(between, "received")
    sent_later = _kept(after, "sent")
    for (source, target), one in sorted(away.items()):
        known = sent.get((source, target))
        if known is None or known.number != one.number or known.units < one.units:
            detail = f"transfer {one.number} from shard {source} to shard {target} is in transit, but was never sent"
            yield Drift("foreign write", None, detail, "transfer", f"{source}>{target}")
    for source, target in sorted({*sent, *((source, target) for target, source in received)}):
        place = source, target
        got = received[target, source].units if (target, source) in received else 0
        first, last = sent.get(place), sent_later.get(place)
        sure = first.units - (away[place].units if place in away else 0) if first else 0
        if got < sure:
            detail = f"shard {source} knows that {sure} of its units arrived at shard {target}, which received {got}"
            yield Drift("orphan transfer", None, detail, "transfer", f"{source}>{target}")
        elif got > (last.units if last else 0):
            units = f"{got} {plural(got, 'unit')}"
            detail = f"shard {target} received {units} from shard {source}, which sent {last.units if last else 0}"
            yield Drift("foreign write", None, detail, "transfer", f"{source}>{target}")


@dataclass(frozen=True, slots=True)
class ShardedRepairReport:
    """The result of a repair in each shard, and between them."""

    shards: tuple[tuple[Repair, ...], ...]
    between: tuple[Repair, ...]
    after: ShardedAuditReport
    """The audit after the repair; without `yes`, of the unchanged pool."""

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """The repairs in the shards, in their order, then those between them."""
        return (*(repair for own in self.shards for repair in own), *self.between)

    @property
    def is_clean(self) -> bool:
        """Return whether nothing is left to repair."""
        return self.after.is_clean

    @property
    def done_count(self) -> int:
        """Number of drifts repaired by this call."""
        return sum(repair.is_done for repair in self.repairs)


def sharded_repair_plan(
    gathering: Gathering, report: ShardedAuditReport, hold_ms: int, *, yes: bool
) -> Plan[ShardedRepairReport]:
    """Repair what `report` names, shard by shard, then between them, then complete pending transfers."""
    shards: list[tuple[Repair, ...]] = []
    for own in report.shards:
        repairs = () if own.is_clean else (yield from repair_plan(own, hold_ms, yes=yes)).repairs
        shards.append(repairs)
    between: list[Repair] = []
    for drift in report.transfers:
        repair = yield from _mend_plan(gathering, drift, yes=yes)
        between.append(repair)
    if yes and all(drift.kind == "orphan transfer" for drift in report.transfers):  # otherwise units may be lost
        with suppress(PoolDrifted):  # the audit below reports what could not be received
            yield from gathering.finish_all_plan()
    return ShardedRepairReport(tuple(shards), tuple(between), (yield from sharded_audit_plan(gathering.directory)))


def _mend_plan(gathering: Gathering, drift: Drift, *, yes: bool) -> Plan[Repair]:
    directory = gathering.directory

    def told(what: str) -> Repair:
        return Repair(drift.kind, None, f"{drift.detail}: {what}", is_done=False)

    unclear = "cannot be mended: it is unknown which of the two shards is right"
    if drift.kind != "orphan transfer":  # for a foreign write, the other shard may not even exist
        return told(unclear)
    numbers = [int(number) for number in drift.name.split(">")]
    if max(numbers) >= len(directory.shards):
        return told(unclear)
    source, target = (directory.shards[number] for number in numbers)
    giver, taker = (yield from perform(op.ReadPool(source))), (yield from perform(op.ReadPool(target)))
    if not (_adds_up(giver) and _adds_up(taker)):
        return told("cannot be mended: a shard's notes of its transfers were changed, so units would be added twice")
    sent, received = note_of(giver, "sent", target.number), note_of(taker, "received", source.number)
    lacking = sent.units - received.units
    if lacking <= 0:
        return told(unclear)
    if not yes:
        return told(f"{lacking} {plural(lacking, 'unit')} would be brought in")
    transfer = Transfer("away", target.number, sent.number, sent.units, sent.units, giver.epoch)
    came = yield from gathering.receive_plan(source, target, transfer)
    if came is None:
        return told(f"cannot be mended before shard {source.number} is rebuilt from the order database")
    units = f"{came.units} {plural(came.units, 'unit', 'was')}"
    return Repair(drift.kind, None, f"{drift.detail}: {units} brought in", is_done=True)


def _adds_up(state: PoolState) -> bool:
    """Return whether a shard's notes of its transfers add up to its totals; a shard that lost data has lost both."""
    totals = {"sent": state.sent, "received": state.received}
    return all(sum(one.units for one in state.transfers if one.kind == kind) == totals[kind] for kind in totals)
