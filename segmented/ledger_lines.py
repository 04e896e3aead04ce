"""The text format of changes and records, and the digest that chains changes. The scripts write the same (`pool.lua`).

A line is order id, quantity, segment, parts, customer, fence, note, separated by tabs, without trailing tabs. The
digest is the first 16 hexadecimal digits of SHA-1 over the last digest, the entry's id, kind, time and lines: it
detects a value that was changed by accident or by hand, unless all later digests were rewritten too. A repair rewrites
an order's record in the same format as the scripts.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from segmented.models.orders import OrderRecord, OrderState, ended_as
from segmented.models.pools import LedgerEntry, LedgerStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from segmented.models import Part

NO_DIGEST: Final = "0" * 16
"""The digest before the first entry."""
STATES: Final[dict[str, OrderState]] = {
    "r": "reserved",
    "c": "confirmed",
    "v": "cancelled",
    "s": "cancelled",
    "x": "cancelled",
    "e": "expired",
    "f": "refused",
}
UNHEARD: Final = "unheard"
"""Note of an order that was cancelled because its caller was gone: the id can be reserved or granted again."""
LETTERS: Final[dict[OrderState, str]] = {state: letter for letter, state in STATES.items()} | {"returned": "x"}


def parts_text(parts: Iterable[Part], *, segment: int | None, quantity: int) -> str:
    """Return the text of the units by segment, empty if all are of the order's own segment."""
    listed = tuple(parts)
    return "" if listed == ((segment, quantity),) else ",".join(f"{number}:{units}" for number, units in listed)


def parse_parts(found: str, *, segment: int | None, quantity: int) -> tuple[Part, ...]:
    """Parse the text that `parts_text` returns."""
    if not found:
        return () if segment is None else ((segment, quantity),)
    return tuple((int(number), int(units)) for number, _, units in (part.partition(":") for part in found.split(",")))


def line_of(entry: LedgerEntry) -> str:
    """Return the text of one change."""
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


def entry_of_line(step: LedgerStep, line: str) -> LedgerEntry:
    """Parse the text that `line_of` returns, of a change in `step`. Raises ValueError."""
    order_id, quantity, segment, parts, customer, fence, note = (*line.split("\t"), *[""] * 6)[:7]
    number, units = int(segment) if segment else None, int(quantity)
    return LedgerEntry(
        step.epoch,
        step.sequence,
        step.kind,
        step.at_us,
        order_id=order_id or None,
        quantity=units,
        parts=parse_parts(parts, segment=number, quantity=units),
        segment=number,
        fencing_token=int(fence) if fence else None,
        customer_id=customer or None,
        note=note,
        chain=step.chain,
    )


def entries_of(step: LedgerStep) -> list[LedgerEntry]:
    """Parse the changes of a step. Raises ValueError."""
    return [entry_of_line(step, line) for line in step.lines.split("\n")]


def step_of(entries: Sequence[LedgerEntry]) -> LedgerStep:
    """Join the changes of one sequence number."""
    first = entries[0]
    lines = "\n".join(map(line_of, entries))
    return LedgerStep(first.epoch, first.sequence, first.kind, first.at_us, lines, first.chain)


def digest(before: str, entries: Sequence[LedgerEntry]) -> str:
    """Return the digest of changes made atomically, after one with digest `before`."""
    return step_digest(before, step_of(entries))


def step_digest(before: str, step: LedgerStep) -> str:
    """Return the digest of a step, after one with digest `before`."""
    content = "\n".join([before, f"{step.epoch}-{step.sequence}", step.kind, str(step.at_us), step.lines])
    return hashlib.sha1(content.encode(), usedforsecurity=False).hexdigest()[:16]


def given_back(entry: LedgerEntry) -> tuple[tuple[Part, ...], str]:
    """Return the units by segment that a return gave back, and its id."""
    if entry.segment is None:  # of an order without a record
        return entry.parts, entry.note
    listed, _, return_id = entry.note.partition(" ")
    return parse_parts(listed, segment=None, quantity=0), return_id


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The note of a checkpoint: all numbers of the pool except its free units, which are in the entry itself."""

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
    """The digest before the checkpoint, so that a ledger that begins there can be checked."""

    def note(self) -> str:
        """Return the text of the note."""
        stocked = (self.opened, self.restocked, self.withdrawn, self.sent, self.received)
        numbers = (self.segment_count, *stocked, self.reserved, self.confirmed)
        return " ".join([*map(str, numbers), "1" if self.is_closed else "0", self.chain_before])


def parse_checkpoint(note: str) -> Checkpoint | None:
    """Parse the text that `Checkpoint.note` returns; return None for anything else."""
    try:
        *numbers, is_closed, chain_before = note.split(" ")
        segments, opened, restocked, withdrawn, sent, received, reserved, confirmed = map(int, numbers)
    except ValueError:
        return None
    stocked = (opened, restocked, withdrawn, sent, received)
    return Checkpoint(segments, *stocked, reserved, confirmed, is_closed == "1", chain_before)


def record_text(record: OrderRecord) -> str:
    """Return the text of a record: ten fields separated by tabs, without trailing tabs."""
    segment = None if record.segment < 0 else record.segment
    fields = (
        LETTERS[record.state],
        str(record.quantity),
        "" if segment is None else str(segment),
        str(record.sequence),
        parts_text(record.parts, segment=segment, quantity=record.quantity),
        record.customer_id or "",
        "" if record.asked == record.quantity else str(record.asked),
        record.holder_id or "",
        "" if record.fencing_token is None else str(record.fencing_token),
        record.cart_home or "",
    )
    return "\t".join(fields).rstrip("\t")


def parse_record(
    order_id: str, raw: str, *, hold_until_ms: int | None = None, states: Mapping[str, OrderState] = STATES
) -> OrderRecord | None:
    """Parse the text that `record_text` returns; return None for a text that no script could have written."""
    fields = raw.split("\t")
    if not 4 <= len(fields) <= 10 or fields[0] not in states:  # noqa: PLR2004  # the fields of a record
        return None
    state, quantity, segment, sequence, parts, customer, asked, holder, fence, home = (*fields, *[""] * 6)[:10]
    try:
        number, units = int(segment) if segment else None, int(quantity)
        return OrderRecord(
            order_id=order_id,
            state=ended_as(states[state], units, number),
            quantity=units,
            segment=-1 if number is None else number,
            parts=parse_parts(parts, segment=number, quantity=units),
            holder_id=holder or None,
            fencing_token=int(fence) if fence else None,
            hold_until_ms=hold_until_ms,
            customer_id=customer or None,
            sequence=int(sequence),
            asked=int(asked) if asked else units,
            cart_home=home or None,
        )
    except ValueError:
        return None
