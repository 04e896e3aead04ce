"""How changes stand in the ledger, and the digest that chains them. The scripts write the same (`lua/shared/pool.lua`).

A line is order id, quantity, segment, parts, customer, fence, note, with tabs between them and none at its end. The
digest is the first 16 hexadecimal digits of SHA-1 over the last digest, the entry's id, kind, time and lines: it finds
a value that was changed by accident or by hand, not one changed by somebody who also rewrites all digests after it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from segmented.models import LedgerEntry, Part

NO_DIGEST: Final = "0" * 16
"""What the first entry is chained to."""


def parts_text(parts: Iterable[Part], *, segment: int | None, quantity: int) -> str:
    """Write units by segment; nothing when all are of the order's own segment."""
    listed = tuple(parts)
    return "" if listed == ((segment, quantity),) else ",".join(f"{number}:{units}" for number, units in listed)


def parse_parts(found: str, *, segment: int | None, quantity: int) -> tuple[Part, ...]:
    """Read what `parts_text` writes."""
    if not found:
        return () if segment is None else ((segment, quantity),)
    return tuple((int(number), int(units)) for number, _, units in (part.partition(":") for part in found.split(",")))


def line_of(entry: LedgerEntry) -> str:
    """Write one change."""
    fields = (
        entry.order_id or "",
        str(entry.quantity),
        "" if entry.segment is None else str(entry.segment),
        parts_text(entry.parts, segment=entry.segment, quantity=entry.quantity),
        entry.customer_id or "",
        "" if entry.fencing_token is None else str(entry.fencing_token),
        entry.note,
    )
    return "\t".join(fields).rstrip("\t")


def digest(before: str, entries: Sequence[LedgerEntry]) -> str:
    """Return the digest of changes made in one step, after one with digest `before`."""
    first = entries[0]
    entry_id = f"{first.epoch}-{first.sequence}"
    content = "\n".join([before, entry_id, first.kind, str(first.at_us), *map(line_of, entries)])
    return hashlib.sha1(content.encode(), usedforsecurity=False).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the note of a checkpoint says: all numbers of the pool but its free units, which are the entry's own."""

    segment_count: int
    opened: int
    restocked: int
    withdrawn: int
    sent: int
    received: int
    reserved: int
    confirmed: int
    is_closed: bool
    chain_before: str
    """The digest to which the checkpoint is chained, so that a ledger which begins there can be checked."""

    def note(self) -> str:
        """Write it."""
        stocked = (self.opened, self.restocked, self.withdrawn, self.sent, self.received)
        numbers = (self.segment_count, *stocked, self.reserved, self.confirmed)
        return " ".join([*map(str, numbers), "1" if self.is_closed else "0", self.chain_before])


def parse_checkpoint(note: str) -> Checkpoint | None:
    """Read what `Checkpoint.note` writes; None for anything else."""
    try:
        *numbers, is_closed, chain_before = note.split(" ")
        segments, opened, restocked, withdrawn, sent, received, reserved, confirmed = map(int, numbers)
    except ValueError:
        return None
    stocked = (opened, restocked, withdrawn, sent, received)
    return Checkpoint(segments, *stocked, reserved, confirmed, is_closed == "1", chain_before)
