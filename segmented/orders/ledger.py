"""The rows of relayed ledgers: read the last one, add missing ones, and mark those that the server lost."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, get_args

from sqlalchemy import and_, bindparam, or_, select, true, update
from sqlalchemy.dialects import mysql, postgresql, sqlite

from segmented.ledger_lines import entries_of, parts_text
from segmented.models import EntryKind
from segmented.orders.postgresql import given_rows
from segmented.orders.reading import in_utc
from segmented.orders.statements import Rows, given
from segmented.orders.tables import ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlalchemy import Connection, Insert

    from segmented.models import LedgerEntry
    from segmented.models.pools import LedgerStep
    from segmented.orders.statements import Run

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

    def __init__(self, dialect: str, begin: str, run: Run) -> None:
        """Create for a database with this dialect and statement that opens a transaction."""
        self._insert = _insert_missing(dialect).execution_options(preserve_rowcount=True)
        super().__init__(begin, run)

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
            while page := list(islice(left, ROWS_MAX)):
                values = _as_arrays(page) if connection.dialect.name == "postgresql" else page
                count += connection.execute(self._insert, values).rowcount
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


def _insert_missing(dialect: str) -> Insert:
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
