"""Limits on ids, skus and numbers."""

from __future__ import annotations

import re
from typing import Final

from segmented.errors import InvalidInput

QUANTITY_MAX: Final = 1_000_000_000
SEGMENT_COUNT_MAX: Final = 4_096
STOCK_MAX: Final = 1_000_000_000_000
UNITS_MAX: Final = 2**53
"""Maximum units that a pool, or a shard, is ever given: a script is exact up to here."""
EPOCH_MAX: Final = 2**20
"""More than any pool needs: each loss of data costs one."""
ORDER_ID_BYTES_MAX: Final = 256
SKU_BYTES_MAX: Final = 128
SHOWN_MAX: Final = 60

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
"""Both ranges: records and ledger are lines of text with tabs, and printed text must not control a terminal."""

is_plain_id: Final = re.compile(f"[ -~]{{1,{ORDER_ID_BYTES_MAX}}}").fullmatch
"""Matches the ids of printable ASCII, which nearly all are; `check_id` accepts them and looks at the others."""


def check_id(value: str, what: str, *, bytes_max: int = ORDER_ID_BYTES_MAX) -> None:
    """Raise InvalidInput unless `value` is text of 1 to `bytes_max` bytes without control characters."""
    if not isinstance(value, str):
        message = f"{what} {shortened(value)} is not text"
        raise InvalidInput(message)
    if not 1 <= _bytes_of(value) <= bytes_max:
        message = f"{what} {shortened(value)} must have 1 to {bytes_max} bytes of UTF-8"
        raise InvalidInput(message)
    if what == "sku" and not value.strip():
        message = f"{what} {shortened(value)} is blank"
        raise InvalidInput(message)
    if _CONTROL.search(value):
        message = f"{what} {shortened(value)} has control characters"
        raise InvalidInput(message)


def shortened(value: object) -> str:
    """Show a caller's value, which may be very long; Python itself refuses to print very long numbers."""
    if isinstance(value, int):
        return repr(value) if abs(value) < 10**SHOWN_MAX else f"(more than {SHOWN_MAX} digits)"
    if isinstance(value, str | bytes):
        return repr(value) if len(value) <= SHOWN_MAX else f"{value[:SHOWN_MAX]!r}..."
    shown = repr(value)
    return shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}..."


def _bytes_of(value: str) -> int:
    """Return the length in UTF-8; 0 for text that UTF-8 cannot encode."""
    if value.isascii():
        return len(value)
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        return 0
