"""PostgreSQL's one statement for a plain envelope: rows of segments and orders, with the commit, in one round trip.

An envelope is plain if no order id comes twice, and the orders of each segment agree on epoch and fence. The statement
stores it if each segment's row has that epoch, no higher fence, and room for all of its orders together, and no order
has a row. Every order is then confirmed, whatever the others do, so no further rule is needed here: `decide` and its
statements have the rules, and get every envelope of which this statement changes nothing.

The statement runs in autocommit, so nobody can roll it back when it has answered. It therefore counts the rows that it
wrote, and fails if some of them are missing. A failure undoes all of it.

Locks are taken as everywhere: the CTE `locked` takes the segments' rows, ascending, before the first of them changes,
and the orders follow, sorted by id.

`given` and `locked` have the sku in each row, and `given` is not merged into its join, so that a segment's row is
joined by its whole key. With the sku as a condition of its own, a server without statistics expects one row of a sku,
and compares every row with every other.

A row may have changed between the statement's snapshot and its lock. `locked` has the row as it is under the lock, and
the UPDATE writes these values, with the quota that they fit. It must not add to the row's own columns: PostgreSQL first
makes the new row from the snapshot's version, and checks the table's constraints on that, before it notices that there
is a later version. With a quota that has grown since, the check would fail for an envelope that fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, Integer

from segmented.orders.answers import Confirmed
from segmented.orders.statements import CLAIMED
from segmented.orders.tables import orders

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from segmented.orders.standing import Claim

_TYPES: Final = {
    name: "bigint" if isinstance(kind, BigInteger) else "integer" if isinstance(kind, Integer) else "text"
    for name, kind in ((name, orders.c[name].type) for name in CLAIMED)
}
"""PostgreSQL's types of the columns whose values a claim has."""
_COLUMNS: Final = ", ".join(_TYPES)
_ARRAYS: Final = ", ".join(f"%(each_{name})s::{kind}[]" for name, kind in _TYPES.items())

STORE_PLAIN: Final = f"""
WITH given AS MATERIALIZED (
    SELECT %(sku)s::text AS sku, given.* FROM unnest(
        %(segments)s::integer[], %(epochs)s::integer[], %(fences)s::bigint[], %(units)s::bigint[],
        %(sequences)s::bigint[]
    ) AS given (segment, epoch, fence, units, sequence)
), locked AS (
    SELECT stock.sku, stock.segment, stock.quota, stock.sold + given.units AS sold,
        coalesce(given.fence, stock.fence) AS fence, stock.sequence AS sequence_before,
        greatest(stock.sequence, given.sequence) AS sequence,
        stock.epoch = given.epoch
            AND (given.fence IS NULL OR stock.fence <= given.fence)
            AND stock.sold + given.units <= stock.quota AS fits
    FROM segmented_segments AS stock JOIN given ON stock.sku = given.sku AND stock.segment = given.segment
    ORDER BY stock.segment
    FOR UPDATE OF stock
), moved AS (
    UPDATE segmented_segments AS stock
    SET quota = locked.quota, sold = locked.sold, fence = locked.fence, sequence = locked.sequence
    FROM locked
    WHERE stock.sku = locked.sku AND stock.segment = locked.segment
        AND (SELECT count(*) FROM locked WHERE fits) = %(segment_count)s
    RETURNING stock.segment
), stored AS (
    INSERT INTO segmented_orders (sku, state, {_COLUMNS})
    SELECT %(sku)s::text, 'confirmed', each.*
    FROM unnest({_ARRAYS}) AS each ({_COLUMNS})
    WHERE (SELECT count(*) FROM moved) = %(segment_count)s
    ORDER BY each.order_id COLLATE "C"
    RETURNING 1
), written AS MATERIALIZED (
    SELECT (SELECT count(*) FROM moved) AS segments, (SELECT count(*) FROM stored) AS orders
)
SELECT CASE
    WHEN segments = %(segment_count)s AND orders = %(order_count)s
        THEN (SELECT array_agg(sequence_before ORDER BY segment) FROM locked)
    WHEN segments > 0 OR orders > 0
        THEN CAST('only ' || segments || ' segments and ' || orders || ' orders were written' AS bigint[])
END FROM written
"""  # noqa: S608  # names of columns
"""Answers with the sequences that the segments' rows had, ascending; NULL: nothing changed."""


def confirm_plain(connection: Connection, claims: Sequence[Claim]) -> list[Confirmed] | None:
    """Confirm all orders of one sku in a transaction of their own. None: nothing changed, and the caller decides.

    Raises IntegrityError if an order has a row, and DataError for a value that the database cannot store, or if not
    everything was written; nothing changed then.
    """
    segments = _segments(claims)
    if segments is None:
        return None
    before = connection.exec_driver_sql(STORE_PLAIN, _values(claims, segments)).scalar_one()
    return None if before is None else _answers(claims, dict(zip(segments, before, strict=True)))


class _Segment:
    """The claims of one segment together."""

    __slots__ = ("epoch", "fence", "sequence", "units")

    def __init__(self, claim: Claim) -> None:
        """Begin with its first claim."""
        self.epoch = claim.epoch
        self.fence = claim.fence
        self.units = 0
        self.sequence = 0


def _segments(claims: Sequence[Claim]) -> dict[int, _Segment] | None:
    """Return what the claims ask of each segment, ascending. None: the envelope is not plain."""
    segments: dict[int, _Segment] = {}
    ids = set()
    for claim in claims:
        ids.add(claim.order.order_id)
        found = segments.get(claim.segment)
        if found is None:
            found = segments[claim.segment] = _Segment(claim)
        elif found.epoch != claim.epoch or found.fence != claim.fence:
            return None
        found.units += claim.order.quantity
        found.sequence = max(found.sequence, claim.sequence)
    return dict(sorted(segments.items())) if len(ids) == len(claims) else None


def _values(claims: Sequence[Claim], segments: dict[int, _Segment]) -> dict[str, Any]:
    return {
        "sku": claims[0].sku,
        "segment_count": len(segments),
        "order_count": len(claims),
        "segments": _numbers(segments),
        "epochs": _numbers(one.epoch for one in segments.values()),
        "fences": _numbers(one.fence for one in segments.values()),
        "units": _numbers(one.units for one in segments.values()),
        "sequences": _numbers(one.sequence for one in segments.values()),
        **{
            f"each_{name}": (_texts if _TYPES[name] == "text" else _numbers)(map(read, claims))
            for name, read in CLAIMED.items()
        },
    }


def _numbers(values: Iterable[int | None]) -> str:
    """Return an array as PostgreSQL reads it; the driver's own way takes five times as long."""
    return f"{{{','.join(['NULL' if value is None else str(value) for value in values])}}}"


def _texts(values: Iterable[str | None]) -> str:
    return f"{{{','.join(['NULL' if value is None else _quoted(value) for value in values])}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _answers(claims: Sequence[Claim], sequences: dict[int, int]) -> list[Confirmed]:
    """Return what `decide` would: each answer has the row's sequence after its order."""
    answers = []
    for claim in claims:
        sequence = sequences[claim.segment] = max(sequences[claim.segment], claim.sequence)
        answers.append(Confirmed(replay=False, sequence=sequence))
    return answers
