"""The text of an order's record, as the scripts write it (`lua/shared/pool.lua`) and a repair writes it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.ledger_lines import parse_parts, parts_text
from segmented.models.orders import OrderRecord

if TYPE_CHECKING:
    from segmented.models.orders import OrderState

STATES: Final[dict[str, OrderState]] = {
    "r": "reserved",
    "c": "confirmed",
    "x": "cancelled",
    "e": "expired",
    "f": "refused",
}
LETTERS: Final[dict[OrderState, str]] = {state: letter for letter, state in STATES.items()}


def record_text(record: OrderRecord) -> str:
    """Write a record: ten fields with tabs between them and none at its end."""
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


def parse_record(order_id: str, raw: str, *, hold_until_ms: int | None = None) -> OrderRecord | None:
    """Read what `record_text` writes; None for a text that no script has written."""
    fields = raw.split("\t")
    if not 4 <= len(fields) <= 10 or fields[0] not in STATES:  # noqa: PLR2004  # the fields of a record
        return None
    state, quantity, segment, sequence, parts, customer, asked, holder, fence, home = (*fields, *[""] * 6)[:10]
    try:
        number, units = int(segment) if segment else None, int(quantity)
        return OrderRecord(
            order_id=order_id,
            state=STATES[state],
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
