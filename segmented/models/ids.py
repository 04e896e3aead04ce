"""Limits on ids, skus and numbers, and how they are shown."""

from __future__ import annotations

import re
from typing import Final
from unicodedata import normalize

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
CART_DIGEST_LENGTH: Final = 12

_UNSEEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
is_unseen: Final = _UNSEEN.search
"""Finds a character that controls a terminal, has no width, turns the direction of writing, or cannot be encoded. It is
a list, since processes with different versions of Python, and so of Unicode, must agree on the ids that they share."""
is_plain_id: Final = re.compile(f"[ -~]{{1,{ORDER_ID_BYTES_MAX}}}").fullmatch
"""Matches the ids of printable ASCII, which nearly all are; `checked_id` accepts them and looks at the others."""
is_cart_line: Final = re.compile(rf".*~[0-9a-f]{{{CART_DIGEST_LENGTH}}}").fullmatch


def plain_text(text: str) -> str:
    """Return the form in which every text reaches keys and scripts: of type `str`, in Unicode's normal form C.

    So a member of an enumeration of texts is its value, whose `str()` may be its name, and an accented letter is one
    text whether the accent was typed with it or behind it.
    """
    found = str.__str__(text)
    return found if found.isascii() else normalize("NFC", found)


def checked_id(value: str, what: str, *, bytes_max: int = ORDER_ID_BYTES_MAX) -> str:
    """Return an id as `plain_text`. Raises InvalidInput unless it is printable text of 1 to `bytes_max` bytes.

    Records and ledger are lines of text with tabs, and an id must neither control a terminal nor look like another one:
    control characters, characters without a width, and those that turn the direction of writing, are refused.
    """
    if type(value) is str and is_plain_id(value) and len(value) <= bytes_max and not value.isspace():
        return value  # as nearly all are
    if not isinstance(value, str):
        raise InvalidInput(f"{what} {shortened(value)} is not text")
    found = plain_text(value)
    if not 1 <= len(found.encode(errors="surrogatepass")) <= bytes_max:
        raise InvalidInput(f"{what} {shortened(found)} must have 1 to {bytes_max} bytes of UTF-8")
    if what == "sku" and not found.strip():
        raise InvalidInput(f"{what} {shortened(found)} is blank")
    if is_unseen(found):
        raise InvalidInput(f"{what} {shortened(found)} has characters that cannot be printed")
    return found


def check_own_id(order_id: str) -> None:
    """Raise InvalidInput for an id of the form of a cart's orders, which only the cart itself may use."""
    if "~" in order_id and is_cart_line(order_id):
        message = f"order id {shortened(order_id)} ends like those of carts: end it otherwise than with ~ and a digest"
        raise InvalidInput(message)


def shortened(value: object) -> str:
    """Show a caller's value, which may be very long; Python itself refuses to print very long numbers."""
    if isinstance(value, int):
        return repr(value) if abs(value) < 10**SHOWN_MAX else f"(more than {SHOWN_MAX} digits)"
    if isinstance(value, str | bytes):
        return repr(value) if len(value) <= SHOWN_MAX else f"{value[:SHOWN_MAX]!r}..."
    shown = repr(value)
    return shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}..."


def visible(text: str) -> str:
    """Return text for a terminal: a character that would control it, or is not seen, is shown as an escape.

    Line ends and tabs stay.
    """
    return _UNSEEN.sub(lambda found: found[0] if found[0] in "\n\t" else ascii(found[0])[1:-1], text)


def plural(number: float, *words: str) -> str:
    """Return a noun, and maybe its verb, in the singular for 1 and else in the plural: `unit is`, `units are`."""
    return " ".join(words if number == 1 else map(_plural_of, words))


def counted(number: int, *words: str) -> str:
    """Return a number with thousands separated, and its noun: `1 run`, `2,000 runs`."""
    return f"{number:,} {plural(number, *words)}"


_IRREGULAR: Final = {"is": "are", "was": "were", "has": "have", "does": "do"}


def _plural_of(word: str) -> str:
    if word.endswith("s"):  # a verb
        return _IRREGULAR.get(word, word[:-1])
    return f"{word[:-1]}ies" if word.endswith("ry") else f"{word}s"
