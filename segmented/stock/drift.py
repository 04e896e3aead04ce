"""Drift: a place where a pool and its ledger disagree, and the audit's report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from segmented.models import PoolState

DriftKind = Literal["lost", "duplicate", "leaked hold", "orphan transfer", "foreign write", "torn cart"]
"""The kind of damage.

| kind | meaning |
| --- | --- |
| lost | the ledger has an order, a restock or a withdrawal without a record |
| duplicate | two effects for one order id |
| leaked hold | a hold without a reserved order, or a reserved order that would never expire |
| orphan transfer | units that left one shard, and are neither in the other nor known to be on the way |
| foreign write | a number, a record or a ledger entry that no operation of the pool could have written |
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
    """The subject of the drift; a "sum" follows from other drift, and is repaired with it."""
    name: str = ""
    """Name of the total, segment, customer, restock, withdrawal or cart."""

    @property
    def place(self) -> tuple[str, str]:
        """The place's name, the same in every audit that finds it."""
        return self.about, self.order_id if self.order_id is not None else self.name

    def __str__(self) -> str:
        """Return one line of text."""
        return (
            f"{self.kind}: {self.detail}"
            if self.order_id is None
            else f"{self.kind}: order {self.order_id}: {self.detail}"
        )


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The audit's findings as of `state.sequence`."""

    state: PoolState
    drift: tuple[Drift, ...]
    """The first 1,000 drifts."""
    drift_count: int
    refused_wrongly: int
    """Recorded refusals although enough units were free."""
    oversold: int
    """Units confirmed and reserved beyond all units ever stocked."""
    by_kind: Mapping[str, int]
    """Number of drifts of each kind found."""
    first_sequence: int = 1
    """Where the ledger begins: 1, or the checkpoint of a trim. Changes before it are compared only as sums."""
    unread: tuple[str, ...] = ()
    """Other pools of this one's carts that did not answer, and why; whatever depends on them was not judged."""

    @property
    def is_clean(self) -> bool:
        """Return whether all numbers follow from a complete ledger, none is oversold, and no refusal was wrong."""
        return not (self.drift_count or self.refused_wrongly or self.oversold or self.state.frozen)
