"""The header `Idempotency-Key`: what it may hold (IETF draft-ietf-httpapi-idempotency-key-header)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from segmented.dedup.identity import KEY_LENGTH_MAX
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME: Final = "idempotency-key"
_QUOTED: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"[ \t]*(?:;.*)?')
"""A string of RFC 8941, and its parameters, of which the draft knows none."""
_PLAIN: Final = re.compile(r"[!#-+\--\[\]-~]+")
"""What clients send that do not quote: printable, without blanks, commas, quotes and backslashes."""
_ESCAPED: Final = re.compile(r'\\(["\\])')


def key_of(values: Sequence[str]) -> str | None:
    """Return the key of a request with these values of the header, quoted or not; None when there is none.

    Raises InvalidInput for a header that is malformed, empty, too long or given twice.
    """
    if not values:
        return None
    if len(values) > 1:
        message = "the header Idempotency-Key is given more than once"
        raise InvalidInput(message)
    text = values[0].strip(" \t")
    quoted = _QUOTED.fullmatch(text)
    key = _ESCAPED.sub(r"\1", quoted[1]) if quoted else text
    if not key.strip() or len(key) > KEY_LENGTH_MAX or not (quoted or _PLAIN.fullmatch(text)):
        message = (
            f"the header Idempotency-Key holds one key of 1 to {KEY_LENGTH_MAX} printable ASCII characters, "
            'in double quotes as in "8e03978e-40d5-43dd" or without'
        )
        raise InvalidInput(message)
    return key
