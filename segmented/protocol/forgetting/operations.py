"""The operation that drops records of finished orders of an open pool."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.protocol.base import Operation


@dataclass(frozen=True, slots=True)
class Forgot:
    """The result of one step."""

    orders: int
    """Records that this step dropped."""
    units: int
    """Confirmed units of these."""
    judged: int
    """How many of the named orders this step has looked at, from the first one; the others need another step."""
    wait_ms: int
    """Milliseconds until records may be dropped, so that every process knows by then; 0: they may."""


@dataclass(frozen=True, slots=True)
class ForgetOrders(Operation[Forgot]):
    """Drop the records of up to 1,000 finished orders, each only if its last change is still the named one.

    Confirmed units of dropped records count as `lost` units: sold ones that the pool has no orders for. The first call
    drops nothing, and notes that the pool will forget: `notice_ms` later it may. A limit per customer goes on counting
    them. Raises InvalidInput for a pool without an order database, or whose ledger was not relayed and trimmed behind
    `up_to`.
    """

    sku: str
    up_to: int
    """The highest sequence number of a last change whose record may go."""
    notice_ms: int
    orders: tuple[tuple[str, int], ...] = ()
    """Order ids, each with the sequence number of its last change."""
