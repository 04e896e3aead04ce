"""Write a value as canonical text, including its types. Keys and fingerprints are made of this text.

Two values have the same text exactly when they are equal and of the same types. A message has been through JSON and a
call has not, so a type that JSON changes counts as what becomes of it: a tuple is a list, an enumeration of texts or
numbers is its value, and an instance of a subclass of text, number, date or UUID is one of that. `1`, `1.0`, `"1"` and
`True` differ. A list is tagged, so that a user's value cannot look like a tagged value. Some types compare by their
written form: `Decimal("1.0")` and `Decimal("1.00")` differ, and so does the same instant in two time zones.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, Final
from uuid import UUID

from segmented.errors import InvalidInput
from segmented.models.ids import plain_text

DIGEST_LENGTH: Final = 32
"""Number of hexadecimal digits of SHA-256 that are kept: 128 bits."""
DEPTH_MAX: Final = 64
INTEGER_BITS_MAX: Final = 4_096
ENCODE: Final = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
PLAIN_INT_MAX: Final = 2**63
PLAIN: Final = frozenset({str, int, float, bool, type(None)})


class NoText(InvalidInput):
    """A value has no text form that is the same in every process."""


def has_no_text(value: object) -> bool:
    """Return whether the value itself has no text, rather than something in it: an object, not a dict with one."""
    if type(value) in PLAIN:
        return False
    try:
        _tagged(value, "it", DEPTH_MAX)  # what is in it would be too deep, which is another error
    except NoText:
        return True
    except InvalidInput:
        return False
    return False


def canonical(value: object, where: str, depth: int = 0) -> str:
    """Return the canonical text of a value. Raises InvalidInput, which names `where`, if the value has none.

    `depth` is the number of levels in which the value itself is nested.
    """
    kind = type(value)
    if kind is int and -PLAIN_INT_MAX < value < PLAIN_INT_MAX:  # type: ignore[operator]  # mypy knows no `kind`
        return str(value)  # as JSON has it, without its machinery: most arguments are such numbers, or texts
    return ENCODE(value if kind is str and value.isascii() else _tagged(value, where, depth))  # type: ignore[attr-defined]  # as above


def digest(text: str) -> str:
    """Return the first 128 bits of a text's SHA-256, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def _tagged(value: object, where: str, depth: int) -> Any:  # noqa: ANN401  # any JSON; a return per type
    kind = type(value)
    if kind is str and value.isascii():  # type: ignore[attr-defined]  # most arguments are, and each publication has some
        return value
    if depth > DEPTH_MAX:
        message = f"{where} is nested deeper than {DEPTH_MAX} levels, or holds itself"
        raise InvalidInput(message)
    match value:
        case None | bool():
            return value
        case int() | float():
            return _checked_number(value, where)
        case str():
            return _checked_text(value, where)
        case Enum():
            name: str | None = value.name  # a combination of flags may have no name
            return ["enum", type(value).__qualname__, str(value.value) if name is None else name]
        case list() | tuple():
            return ["list", *(_tagged(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value))]
        case dict():
            pairs = [_pair(key, item, where, depth) for key, item in value.items()]
            return ["dict", *sorted(pairs, key=lambda pair: str(pair[0]))]
        case set() | frozenset():
            return ["set", *sorted(digest(canonical(item, where, depth + 1)) for item in value)]
    return _scalar(value, where, depth)


def _pair(key: object, item: object, where: str, depth: int) -> list[Any]:
    if not isinstance(key, str):
        message = f"{where} has the key {key!r}, which is not a text: JSON would change it"
        raise InvalidInput(message)
    return [_checked_text(key, where), _tagged(item, f"{where}[{key!r}]", depth + 1)]


def _scalar(value: object, where: str, depth: int) -> list[Any]:
    match value:
        case bytes() | bytearray():
            return ["bytes", base64.b64encode(value).decode()]
        case datetime():
            return ["datetime", value.isoformat()]
        case date():
            return ["date", value.isoformat()]
        case time():
            return ["time", value.isoformat()]
        case timedelta():
            return ["timedelta", value.days, value.seconds, value.microseconds]
        case Decimal() if not value.is_finite():
            message = f"{where} is {value!r}, which equals nothing: it cannot be part of a key"
            raise InvalidInput(message)
        case Decimal():
            return ["Decimal", str(value)]
        case UUID():
            return ["UUID", str(value)]
    if is_dataclass(value) and not isinstance(value, type):
        parts = [
            [one.name, _tagged(getattr(value, one.name), f"{where}.{one.name}", depth + 1)] for one in fields(value)
        ]
        return ["dataclass", type(value).__qualname__, *parts]
    message = (
        f"{where} is {type(value).__name__}, which has no text form that is the same in every process: "
        "name a part of it in the key expression, or give a callable"
    )
    raise NoText(message)


def _checked_number(number: float, where: str) -> float:
    if isinstance(number, int):
        if number.bit_length() > INTEGER_BITS_MAX:
            message = f"{where} is a whole number of more than {INTEGER_BITS_MAX} bits"
            raise InvalidInput(message)
        return number
    if not isfinite(number):
        message = f"{where} is {number!r}, which equals nothing: it cannot be part of a key"
        raise InvalidInput(message)
    return number + 0.0  # -0.0 becomes 0.0, which equals it


def _checked_text(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"{where} holds a lone surrogate, which cannot be written: {text!r}"
        raise InvalidInput(message) from error
    return plain_text(text)
