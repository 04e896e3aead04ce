"""The model of the relay's note."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from segmented import protocol as op
from segmented.protocol.relay.wire import ledger_diverged

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.protocol.pool.model_records import ModelPool


class RelayModel:
    """Notes up to which change a pool's ledger was relayed."""

    def __init__(self, pool_of: Callable[[str], ModelPool]) -> None:
        """Create the model of the pools that `pool_of` returns or raises for."""
        self._pool = pool_of

    def bodies(self) -> dict[type[op.Operation[Any]], Callable[[Any], object]]:
        """Return the method that performs each operation."""
        return {op.NoteRelayed: self.note}

    def note(self, operation: op.NoteRelayed) -> tuple[int, int]:
        """Note a change, unless entries between it and the ledger's next one are gone."""
        pool, given = self._pool(operation.sku), operation.relayed
        if given is not None and given > (pool.epoch, pool.sequence):
            found = (pool.epoch, pool.sequence)
            raise ledger_diverged(pool.sku, given, found, "behind")
        following = _next_after(pool, given)
        if given is None:
            if following[1] > 1 and pool.relayed is not None:
                raise ledger_diverged(pool.sku, None, following, "gap")
            if following[1] > 1:
                following = (pool.epoch, pool.ledger_start)
            given = (following[0], following[1] - 1)
        elif _is_gap(pool, given, following):
            raise ledger_diverged(pool.sku, given, following, "gap")
        pool.relayed = max(given, pool.relayed or given)
        return given


def _next_after(pool: ModelPool, given: tuple[int, int] | None) -> tuple[int, int]:
    """Return the id of the entry that is relayed next; a trim deletes the entries before the start little by little."""
    ids = ((entry.epoch, entry.sequence) for entry in pool.ledger)
    found = next((one for one in ids if given is None or one > given), None)
    if found is None:
        return (pool.epoch, pool.sequence + 1)
    return max(found, (pool.epoch, pool.ledger_start)) if found[0] == pool.epoch else found


def _is_gap(pool: ModelPool, given: tuple[int, int], following: tuple[int, int]) -> bool:
    if given[0] == pool.epoch:
        return pool.ledger_start > given[1] + 1
    return pool.relayed is not None and given < pool.relayed and following != (given[0], given[1] + 1)
