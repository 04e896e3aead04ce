"""Copy a pool's ledger to the order database, at least once; a row for each change, found by its id.

1. The database is read: the last change of each shard that it has. Its number is the position, which is kept nowhere
   else.
2. The pool notes the position. From then on its ledger is trimmed only behind it. If entries between the position and
   the ledger's next one are gone, or the pool is behind the position, nothing is relayed.
3. Pages of the ledger are inserted, one transaction each; rows that exist stay as they are. After each page the pool
   notes the new position.
4. Rows that the server had lost before the pool was thawed are marked.
5. If asked to, the ledger is trimmed behind the position.

Every step can be repeated, and any number of processes may do it at once. A page follows the one before in the database
before the next one is read, so there is never a hole behind the position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.clock import in_seconds
from segmented.errors import InvalidInput, PoolFrozen
from segmented.ledger_lines import step_digest
from segmented.models import shortened
from segmented.orders.ledger import LastRow
from segmented.orders.verifying import check_sale, when_verified
from segmented.protocol.archive import ledger_diverged
from segmented.stock import ShardedPool

if TYPE_CHECKING:
    from segmented.clock import Duration
    from segmented.models.pools import LedgerStep
    from segmented.orders.database import OrderDatabase
    from segmented.stock import Pool

PAGE: Final = 1_000
"""Maximum number of ledger entries of a page; a page ends at 256 KiB as well."""


@dataclass(frozen=True, slots=True)
class ShardRelay:
    """Counts of what a relay copied of one shard, or of a pool in one piece, and of what is left."""

    shard: int
    relayed: tuple[int, int]
    """Epoch and sequence number up to which the database has the ledger."""
    copied: int
    """Rows that this call added: one for each change."""
    marked: int
    """Rows that this call marked as lost."""
    entries_behind: int
    """Entries of the ledger that the database lacks."""
    seconds_behind: float
    """Age of the oldest of them, by the clock of the stock's server."""
    first_sequence: int | None
    """Where the ledger begins after the trim; None if none was asked for, or the pool is frozen."""


@dataclass(frozen=True, slots=True)
class RelayReport:
    """Counts of what a relay copied, and of what is left."""

    sku: str
    shards: tuple[ShardRelay, ...]

    @property
    def copied(self) -> int:
        """Rows that this call added."""
        return sum(one.copied for one in self.shards)

    @property
    def entries_behind(self) -> int:
        """Entries of all shards that the database lacks."""
        return sum(one.entries_behind for one in self.shards)

    @property
    def seconds_behind(self) -> float:
        """Age of the oldest of them."""
        return max(one.seconds_behind for one in self.shards)


def relay(
    pool: Pool | ShardedPool, gate: OrderDatabase, *, timeout: Duration | None = None, trim_keep: int | None = None
) -> RelayReport:
    """Copy the ledger's entries that the database lacks, up to the last one at the time of the call.

    For gated pools and others. Safe to repeat, and to run twice at once: each change has one row. Ends after `timeout`
    seconds, with one page for each shard at least; the next call goes on. With `trim_keep` the ledger is trimmed to
    about that many entries, and to those that the database lacks. Raises PoolMissing, InvalidInput if the ledger does
    not continue what the database has, and DatabaseUnavailable or StoreUnavailable with all whole pages so far kept.
    """
    timeout = in_seconds(timeout)
    if timeout is not None and not timeout > 0:
        message = f"the timeout of a relay must be positive, not {timeout:g} s"
        raise InvalidInput(message)
    if trim_keep is not None and (type(trim_keep) is not int or trim_keep < 0):
        message = f"trim_keep={shortened(trim_keep)} must be a number of ledger entries to keep, from 0"
        raise InvalidInput(message)
    clock = pool.store.clock
    until = None if timeout is None else clock.now() + timeout
    shards = pool.shards if isinstance(pool, ShardedPool) else (pool,)
    relays = (_ShardRelay(pool.sku, number, shard, gate) for number, shard in enumerate(shards))
    return RelayReport(pool.sku, tuple(one.run(until, trim_keep) for one in relays))


class _ShardRelay:
    """The relay of one shard."""

    def __init__(self, sku: str, number: int, shard: Pool, gate: OrderDatabase) -> None:
        self._sku, self._number, self._shard, self._gate = sku, number, shard, gate
        self._rows = gate.ledger

    def run(self, until: float | None, trim_keep: int | None) -> ShardRelay:
        """Copy pages until the last entry of now, or the deadline; then mark, and trim."""
        end = self._shard.state()
        if end.gated:
            check_sale(self._gate, end, self._gate.totals(self._sku))
        last, position = self._begun()
        epochs, copied = {position[0]}, 0
        while position < (end.epoch, end.sequence):
            steps = self._page(position)
            if not steps:
                break
            if last is not None:  # for each page, as another server may have answered
                self._check_continues(last, steps[0])
            copied += self._rows.add(self._sku, self._number, steps)
            last = LastRow(steps[-1].epoch, steps[-1].sequence, steps[-1].chain)
            position = last.change
            epochs |= {step.epoch for step in steps}
            self._note(position)
            if until is not None and self._shard.store.clock.now() >= until:
                break
        marked = sum(self._rows.mark_lost(self._sku, self._number, epoch) for epoch in sorted(epochs) if epoch > 1)
        first = None if trim_keep is None else self._trimmed(trim_keep, is_gated=end.gated)
        state = self._shard.state()
        behind = max(0, state.sequence - position[1])
        return ShardRelay(self._number, position, copied, marked, behind, state.relay_age_ms / 1_000, first)

    def _trimmed(self, keep: int, *, is_gated: bool) -> int | None:
        """Trim behind what was relayed, and return where the ledger begins; a frozen pool keeps its ledger."""
        gate = self._gate if is_gated else None
        try:
            trimmed = when_verified(self._shard, gate, lambda: self._shard.trim_ledger(keep=keep, relayed_only=True))
        except PoolFrozen:
            return None
        return trimmed.first_sequence

    def _begun(self) -> tuple[LastRow | None, tuple[int, int]]:
        """Return the database's last row, and the position from which to relay, which the pool has noted."""
        last = self._rows.last(self._sku, self._number)
        while True:
            try:
                noted = self._note(None if last is None else last.change)
            except InvalidInput:
                # Another relay may have moved on meanwhile, and a trim followed it.
                again = self._rows.last(self._sku, self._number)
                if again == last:
                    raise
                last = again
            else:
                return last, noted if last is None else last.change

    def _note(self, position: tuple[int, int] | None) -> tuple[int, int]:
        return self._shard.store.execute(op.NoteRelayed(self._shard.sku, position))

    def _page(self, position: tuple[int, int]) -> tuple[LedgerStep, ...]:
        epoch, sequence = position
        return self._shard.store.execute(op.ReadSteps(self._shard.sku, sequence, PAGE, epoch))

    def _check_continues(self, last: LastRow, step: LedgerStep) -> None:
        """Raise LedgerDiverged unless this entry was written after the database's last row."""
        follows = (step.epoch, step.sequence) == (last.epoch, last.sequence + 1)
        if follows and step_digest(last.chain, step) != step.chain:
            raise ledger_diverged(self._sku, last.change, (step.epoch, step.sequence), "rewritten")
