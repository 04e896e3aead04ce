"""The repair of a pool in shards: repairs each shard, and transfers that a shard lost with its data.

A target receives only the difference to what the source has sent it in total, so repeated receipts count once.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from segmented import protocol as op
from segmented.errors import PoolDrifted
from segmented.models import Transfer
from segmented.plans import perform
from segmented.stock.repair import Repair, repair_plan
from segmented.stock.sharded.audit import ShardedAuditReport, sharded_audit_plan

if TYPE_CHECKING:
    from segmented.models import PoolState, ShardDirectory
    from segmented.plans import Plan
    from segmented.stock.drift import Drift
    from segmented.stock.sharded.gathering import Gathering


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
        repair = yield from _mend_plan(gathering.directory, drift, yes=yes)
        between.append(repair)
    if yes and all(drift.kind == "orphan transfer" for drift in report.transfers):  # otherwise units may be lost
        with suppress(PoolDrifted):  # the audit below reports what could not be received
            yield from gathering.finish_all_plan()
    return ShardedRepairReport(tuple(shards), tuple(between), (yield from sharded_audit_plan(gathering.directory)))


def _mend_plan(directory: ShardDirectory, drift: Drift, *, yes: bool) -> Plan[Repair]:
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
    sent, received = _note(giver, "sent", target.number), _note(taker, "received", source.number)
    lacking = sent.units - received.units
    if lacking <= 0:
        return told(unclear)
    if not yes:
        return told(f"{lacking} units would be brought in")
    came = yield from perform(op.ReceiveUnits(target, source.number, sent.number, sent.units))
    return Repair(drift.kind, None, f"{drift.detail}: {came.units} units were brought in", is_done=True)


def _adds_up(state: PoolState) -> bool:
    """Return whether a shard's notes of its transfers add up to its totals; a shard that lost data has lost both."""
    totals = {"sent": state.sent, "received": state.received}
    return all(sum(one.units for one in state.transfers if one.kind == kind) == totals[kind] for kind in totals)


def _note(state: PoolState, kind: Literal["sent", "received"], other: int) -> Transfer:
    found = (one for one in state.transfers if (one.kind, one.other) == (kind, other))
    return next(found, Transfer(kind, other, 0, 0))
