"""One place where a pool and its ledger disagree, and the report of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from segmented.models import PoolState

DriftKind = Literal["lost", "duplicate", "leaked hold", "orphan transfer", "foreign write", "torn cart"]
"""What kind of damage it is.

| kind | what is found |
| --- | --- |
| lost | the ledger tells of an order, a restock or a withdrawal of which there is no record |
| duplicate | two effects for one order id |
| leaked hold | a hold without a reserved order, or a reserved order that would never lapse |
| orphan transfer | units that left one shard, and are neither in the other nor known to be on the way |
| foreign write | a number, a record or a ledger entry that no operation of the pool has left so |
| torn cart | a cart whose decision and whose orders contradict each other |
"""
About = Literal["total", "segment", "customer", "order", "change", "transfer", "ledger", "sum", "cart"]


@dataclass(frozen=True, slots=True)
class Drift:
    """One place where the pool and its ledger disagree."""

    kind: DriftKind
    order_id: str | None
    detail: str
    about: About = "order"
    """Where it is; a "sum" follows from other drift, and goes with it."""
    name: str = ""
    """Of the total, segment, customer, restock, withdrawal or cart."""

    @property
    def place(self) -> tuple[str, str]:
        """Name the place: the same in every audit that finds it."""
        return self.about, self.order_id if self.order_id is not None else self.name

    def __str__(self) -> str:
        """Say it in one line."""
        return (
            f"{self.kind}: {self.detail}"
            if self.order_id is None
            else f"{self.kind}: order {self.order_id}: {self.detail}"
        )


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What the audit found, as of `state.sequence`."""

    state: PoolState
    drift: tuple[Drift, ...]
    """The first 1,000."""
    drift_count: int
    refused_wrongly: int
    """Recorded refusals at which enough units were free."""
    oversold: int
    """Units confirmed and reserved beyond those ever stocked."""
    by_kind: Mapping[str, int]
    """How many drifts there are of each kind that was found."""
    first_sequence: int = 1
    """Where the ledger begins: 1, or the checkpoint of a trim. What was decided before it is only compared in sums."""
    unread: tuple[str, ...] = ()
    """Other pools of this one's carts that did not answer, and why: what depends on them was not judged."""

    @property
    def is_clean(self) -> bool:
        """Does every number follow from the ledger, with nothing oversold and nobody refused wrongly?"""
        return not (self.drift_count or self.refused_wrongly or self.oversold)
