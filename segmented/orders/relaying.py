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

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, get_args

from sqlalchemy import and_, bindparam, or_, select, true, update
from sqlalchemy.dialects import mysql, postgresql, sqlite

from segmented import protocol as op
from segmented.clock import in_seconds
from segmented.errors import InvalidInput, PoolFrozen
from segmented.ledger_lines import entries_of, parts_text, step_digest
from segmented.models import EntryKind, shortened
from segmented.orders.postgresql import given_rows
from segmented.orders.statements import Rows, given, in_utc
from segmented.orders.tables import ledger
from segmented.orders.verifying import check_sale, when_verified
from segmented.protocol.archive import ledger_diverged
from segmented.stock import ShardedPool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlalchemy import Connection, Insert

    from segmented.clock import Duration
    from segmented.models import LedgerEntry
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
        raise InvalidInput(f"the timeout of a relay must be positive, not {timeout:g} s")
    if trim_keep is not None and (type(trim_keep) is not int or trim_keep < 0):
        raise InvalidInput(f"trim_keep={shortened(trim_keep)} must be a number of ledger entries to keep, from 0")
    clock = pool.store.clock
    until = None if timeout is None else clock.now() + timeout
    shards = pool.shards if isinstance(pool, ShardedPool) else (pool,)
    relays = (_ShardRelay(pool.sku, number, shard, gate) for number, shard in enumerate(shards))
    return RelayReport(pool.sku, tuple(one.run(until, trim_keep) for one in relays))


class _ShardRelay:
    """The relay of one shard."""

    def __init__(self, sku: str, number: int, shard: Pool, gate: OrderDatabase) -> None:
        self._sku, self._number, self._shard, self._gate = sku, number, shard, gate
        self._rows = LedgerRows(gate)

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


# --- the rows: read the last one, add missing ones, and mark those that the server lost ---

KINDS: Final = frozenset(get_args(EntryKind))
ROWS_MAX: Final = 1_000
"""Maximum number of rows sent in one call of the driver."""
EPOCH_START: Final = datetime(1970, 1, 1, tzinfo=UTC)
THAWED: Final = re.compile(r"at (\d+)-(\d+) seen ")
"""The note of a thaw begins with the epoch and the sequence number that the pool still had."""

COLUMNS: Final = [column for column in ledger.c if column is not ledger.c.is_lost]

_OF_SHARD: Final = and_(ledger.c.sku == given(ledger.c.sku), ledger.c.shard == given(ledger.c.shard))
_SELECT_LAST: Final = (
    select(ledger.c.epoch, ledger.c.sequence, ledger.c.chain)
    .where(_OF_SHARD)
    .order_by(ledger.c.epoch.desc(), ledger.c.sequence.desc())
    .limit(1)
)
_SELECT_AT: Final = (
    select(ledger.c.sequence, ledger.c.changed_at)
    .where(_OF_SHARD, ledger.c.epoch == given(ledger.c.epoch), ledger.c.sequence <= given(ledger.c.sequence))
    .order_by(ledger.c.sequence.desc(), ledger.c.line.desc())
    .limit(1)
)
_SELECT_FIRST: Final = (
    select(ledger.c.sequence, ledger.c.changed_at)
    .where(_OF_SHARD, ledger.c.epoch == given(ledger.c.epoch))
    .order_by(ledger.c.sequence)
    .limit(1)
)
_SELECT_FIRST_NOTES: Final = (
    select(ledger.c.kind, ledger.c.note)
    .where(_OF_SHARD, ledger.c.epoch == given(ledger.c.epoch))
    .order_by(ledger.c.sequence, ledger.c.line)
    .limit(2)
)
"""A ledger that starts again after a thaw begins with a checkpoint and the thaw."""
_MARK_LOST: Final = (
    update(ledger)
    .where(
        _OF_SHARD,
        ledger.c.epoch < given(ledger.c.epoch),
        or_(
            ledger.c.epoch > bindparam("kept_epoch"),
            and_(ledger.c.epoch == bindparam("kept_epoch"), ledger.c.sequence > bindparam("kept_sequence")),
        ),
        ledger.c.is_lost.is_(False),
    )
    .values(is_lost=true())
)


@dataclass(frozen=True, slots=True)
class LastRow:
    """The id of a shard's last row, and the digest over all rows up to it."""

    epoch: int
    sequence: int
    chain: str

    @property
    def change(self) -> tuple[int, int]:
        """The id as epoch and sequence number."""
        return self.epoch, self.sequence


class LedgerRows(Rows):
    """The table of relayed ledgers."""

    def last(self, sku: str, shard: int) -> LastRow | None:
        """Read the last row of a shard."""
        values = {"given_sku": sku, "given_shard": shard}

        def work(connection: Connection) -> LastRow | None:
            found = connection.execute(_SELECT_LAST, values).one_or_none()
            return None if found is None else LastRow(*found)

        return self._run(work)

    def last_before(self, sku: str, shard: int, last: tuple[int, int], ended: datetime) -> int:
        """Return the last change up to `last` of its epoch, as sequence number, made by `ended`; 0 if there is none."""
        values = {"given_sku": sku, "given_shard": shard, "given_epoch": last[0]}

        def work(connection: Connection) -> int:
            first = connection.execute(_SELECT_FIRST, values).one_or_none()
            if first is None or in_utc(first[1]) > ended:
                return 0
            # Changes up to `low` are old enough, those after `high` are not.
            low, high = min(int(first[0]), last[1]), last[1]
            while low < high:
                middle = (low + high + 1) // 2
                found = connection.execute(_SELECT_AT, values | {"given_sequence": middle}).one_or_none()
                if found is None or in_utc(found[1]) > ended:
                    high = (middle if found is None else found[0]) - 1
                else:
                    low = middle
            return low

        return self._run(work)

    def add(self, sku: str, shard: int, steps: Iterable[LedgerStep]) -> int:
        """Add the rows of these entries that are missing, in one transaction, and return how many were."""
        rows = [_row(sku, shard, line, entry) for line, entry in _entries(steps)]

        def work(connection: Connection) -> int:
            left, count = iter(rows), 0
            insert = _insert_missing(connection.dialect.name)
            while page := list(islice(left, ROWS_MAX)):
                values = _as_arrays(page) if connection.dialect.name == "postgresql" else page
                count += connection.execute(insert, values).rowcount
            return count

        return self._write(work) if rows else 0

    def mark_lost(self, sku: str, shard: int, epoch: int) -> int:
        """Mark the rows of earlier epochs that the pool had lost when it was thawed into this one, if it was."""
        values = {"given_sku": sku, "given_shard": shard, "given_epoch": epoch}

        def work(connection: Connection) -> int:
            notes = [note for kind, note in connection.execute(_SELECT_FIRST_NOTES, values) if kind == "thawed"]
            kept = THAWED.match(notes[0] or "") if notes else None
            if kept is None:
                return 0
            given_kept = {"kept_epoch": int(kept[1]), "kept_sequence": int(kept[2])}
            return connection.execute(_MARK_LOST, values | given_kept).rowcount

        return self._write(work)


@cache
def _insert_missing(dialect: str) -> Insert:
    return _insert_of(dialect).execution_options(preserve_rowcount=True)


def _insert_of(dialect: str) -> Insert:
    if dialect == "postgresql":  # the rows as one array for each column: a third of the time of a row after the other
        rows = given_rows("entry", *(("each", column) for column in COLUMNS))
        found = select(*(rows.c[f"each_{column.name}"] for column in COLUMNS))
        return postgresql.insert(ledger).from_select(COLUMNS, found, include_defaults=False).on_conflict_do_nothing()
    if dialect == "sqlite":
        return sqlite.insert(ledger).on_conflict_do_nothing()
    return mysql.insert(ledger).on_duplicate_key_update(line=ledger.c.line)  # a row that is there counts as unchanged


def _as_arrays(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {f"each_{column.name}": [row[column.name] for row in rows] for column in COLUMNS}


def _entries(steps: Iterable[LedgerStep]) -> Iterator[tuple[int, LedgerEntry]]:
    """Yield the changes with their places. An entry that another program wrote is left out; the audit reports it."""
    for step in steps:
        if step.kind not in KINDS:
            continue
        try:
            entries = entries_of(step)
        except ValueError:
            continue
        yield from enumerate(entries)


def _row(sku: str, shard: int, line: int, entry: LedgerEntry) -> dict[str, Any]:
    return {
        "sku": sku,
        "shard": shard,
        "epoch": entry.epoch,
        "sequence": entry.sequence,
        "line": line,
        "kind": entry.kind,
        "order_id": entry.order_id,
        "quantity": entry.quantity,
        "customer_id": entry.customer_id,
        "changed_at": EPOCH_START + timedelta(microseconds=entry.at_us),
        "segment": entry.segment,
        "parts": parts_text(entry.parts, segment=entry.segment, quantity=entry.quantity) or None,
        "fence": entry.fencing_token,
        "note": entry.note or None,
        "chain": entry.chain,
    }
