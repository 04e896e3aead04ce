"""Measures the slow work of a past sale: from each order's grant to its confirmation, by the server's clock."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Final

from segmented.errors import InvalidInput
from segmented.stock import ShardedPool, find_pool

if TYPE_CHECKING:
    from segmented.stores.redis import RedisStore

ENTRIES_MAX: Final = 20_000
"""Maximum number of ledger entries to read per shard, the latest ones."""


@dataclass(frozen=True, slots=True)
class PastHold:
    """How long segments were held, in seconds."""

    locked: float
    """The mean time from grant to confirmation: the slow work and one round trip."""
    orders: int
    """Number of orders in the mean."""

    def hold(self, *, round_trip: float) -> float:
        """Return the slow work alone."""
        return max(0.0, self.locked - round_trip)


def past_hold(store: RedisStore, sku: str) -> PastHold:
    """Read the latest part of a pool's ledger; nothing is changed.

    Counts orders that were granted and confirmed there. An order that was granted again, to a second worker, counts
    from the later grant. Raises InvalidInput if there is no such order, as in a pool whose orders are reserved without
    a lock.
    """
    found = find_pool(store, sku)
    spans: list[int] = []
    for pool in found.shards if isinstance(found, ShardedPool) else (found,):
        began: dict[str | None, int] = {}
        for entry in pool.read_ledger(after=max(0, pool.state().sequence - ENTRIES_MAX)):
            if entry.kind in {"reserved", "granted"} and entry.fencing_token is not None:
                began[entry.order_id] = entry.at_us
            elif entry.kind == "confirmed" and entry.order_id in began:
                spans.append(entry.at_us - began.pop(entry.order_id))
    if not spans:
        message = f"pool {sku!r} has no order that was granted and confirmed lately, so it does not tell a hold"
        raise InvalidInput(message)
    return PastHold(locked=fmean(spans) / 1e6, orders=len(spans))
