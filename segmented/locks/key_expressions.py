"""Key expressions make a lock's name from the arguments of a call, as in `"order:{order.activity_id}:{mobile}"`.

The syntax is a small part of that of format strings: a field is an argument followed by attributes and items
(`{items[0].id}`, `{payload[sku]}`), and a literal brace is doubled. Expressions call nothing, read no attribute with a
leading underscore, and have no conversions or format specifications. An expression is parsed once, when the function is
decorated, and evaluated once per call.

Two calls share a key exactly when the texts of all their parts are equal. In each part, `%` and every character between
two fields of the expression are escaped, so ("a-b", "c") and ("a", "b-c") never get the same key, neither in
`"{x}-{y}"` nor in `"{x}:{y}"`. For that, two fields need at least one character between them that is neither `%` nor a
hexadecimal digit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from typing import Final
from uuid import UUID

from segmented.errors import InvalidInput
from segmented.models.ids import is_unseen, plain_text

ARGUMENT: Final = re.compile(r"[^\W\d]\w*")
STEP: Final = re.compile(r"\.(?P<attribute>[^\W\d]\w*)|\[(?P<item>[^\[\]]+)\]")
NUMBER: Final = re.compile(r"-?[0-9]+")
ESCAPE: Final = frozenset("%0123456789ABCDEF")
"""The characters of an escape, which therefore cannot separate two parts."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """A step to an attribute."""

    name: str


@dataclass(frozen=True, slots=True)
class Item:
    """A step to an item: a whole number for a sequence or a mapping with such keys, otherwise a text."""

    key: int | str


@dataclass(frozen=True, slots=True)
class Path:
    """An argument and the steps from it to a value, such as `order.lines[0].sku`."""

    text: str
    argument: str
    steps: tuple[Attribute | Item, ...]

    @classmethod
    def parse(cls, text: str) -> Path:
        """Parse a path. Raises InvalidInput, which says what is wrong in it."""
        start = ARGUMENT.match(text)
        if start is None:
            raise InvalidInput(f"{text!r} does not begin with the name of an argument")
        steps: list[Attribute | Item] = []
        position = start.end()
        while position < len(text):
            found = STEP.match(text, position)
            if found is None:
                raise InvalidInput(f"{text!r} has {text[position:]!r}, which is neither .attribute nor [item]")
            steps.append(_step(text, found))
            position = found.end()
        return cls(text, start.group(), tuple(steps))

    def read(self, arguments: Mapping[str, object]) -> object:
        """Return the value at the path. Raises InvalidInput if a step fails."""
        found = arguments[self.argument]
        for step in self.steps:
            try:
                found = getattr(found, step.name) if isinstance(step, Attribute) else found[step.key]  # type: ignore[index]  # what cannot be indexed raises
            except (AttributeError, LookupError, TypeError) as error:
                name = step.name if isinstance(step, Attribute) else None
                cure = f"; an item is read as [{name}]" if isinstance(found, dict) and name in found else ""
                raise InvalidInput(f"{self.text!r} leads nowhere: {type(error).__name__}: {error}{cure}") from error
        return found


def _step(text: str, found: re.Match[str]) -> Attribute | Item:
    attribute, item = found["attribute"], found["item"]
    if attribute is not None:
        if attribute.startswith("_"):
            raise InvalidInput(f"{text!r} reads {attribute!r}: attributes with a leading underscore are not read")
        return Attribute(attribute)
    if item[0] in "\"'":
        raise InvalidInput(f"{text!r} has quotes in [{item}]: an item is written without")
    return Item(int(item) if NUMBER.fullmatch(item) else item)


class KeyExpression:
    """A parsed expression, independent of a function; its user checks which arguments exist."""

    def __init__(self, text: str) -> None:
        self.text = text
        pieces = list(_pieces(text))
        if not text or any(is_unseen(piece) for piece in pieces if isinstance(piece, str)):
            raise InvalidInput("it is empty or holds characters that cannot be printed")
        self._pieces = _merged(pieces)
        self._escaped = frozenset("%" + "".join(self._separators()))

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return the fields, in order."""
        return tuple(piece for piece in self._pieces if isinstance(piece, Path))

    def key(self, arguments: Mapping[str, object], *, marked: bool = False) -> str:
        """Return the key for these arguments, reading each field once. Raises InvalidInput for an unusable part.

        If `marked`, each part is in braces, so that no two expressions with other literals make the same key.
        """
        return "".join(
            self._literal(piece, marked=marked)
            if isinstance(piece, str)
            else self._part(piece, arguments, marked=marked)
            for piece in self._pieces
        )

    def _literal(self, text: str, *, marked: bool) -> str:
        return text.replace("{", "{{").replace("}", "}}") if marked else text

    def _part(self, path: Path, arguments: Mapping[str, object], *, marked: bool) -> str:
        part = self._escape(part_text(path.read(arguments), path.text))
        return f"{{{part.replace('{', '%7B').replace('}', '%7D')}}}" if marked else part

    def _separators(self) -> Iterator[str]:
        last: Path | None = None
        between = ""
        for piece in self._pieces:
            if isinstance(piece, str):
                between = piece
                continue
            if last is not None:
                if not set(between) - ESCAPE:
                    raise InvalidInput(f"{{{last.text}}} and {{{piece.text}}} need a character such as : between them")
                yield "".join(sorted(set(between) - ESCAPE))
            last, between = piece, ""

    def _escape(self, part: str) -> str:
        if part.isascii() and part.isprintable() and self._escaped.isdisjoint(part):  # nearly every part
            return part
        return "".join(_percent(one) if one in self._escaped or _is_blank(one) else one for one in part)


def _pieces(text: str) -> Iterator[str | Path]:
    position = 0
    while position < len(text):
        character = text[position]
        if text[position : position + 2] in {"{{", "}}"}:
            yield character
            position += 2
        elif character == "{":
            end = text.find("}", position)
            if end < 0:
                raise InvalidInput(f"the brace at {position} is not closed")
            yield Path.parse(text[position + 1 : end])
            position = end + 1
        elif character == "}":
            raise InvalidInput(f"the brace at {position} closes nothing; a literal one is doubled")
        else:
            yield character
            position += 1


def _merged(pieces: list[str | Path]) -> tuple[str | Path, ...]:
    merged: list[str | Path] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    return tuple(merged)


def part_text(value: object, where: str) -> str:
    """Return the text of a value in a key. Raises InvalidInput for a value without a well-defined text.

    Values with equal texts make the same key: 1 and "1" on purpose, since callers pass the same id as a number or as a
    text, and one lock too few is safe while two locks for one thing are not. True is "True", never 1. The text of an
    enumeration is its value's, of a UUID its usual form, of a date the ISO form, of an aware datetime the one in UTC.
    """
    match value:
        case str() if value:
            return plain_text(value)
        case bool():
            return str(value)
        case int():
            return int.__repr__(value)
        case Enum():
            return part_text(value.value, where)
        case UUID():
            return str(value)
        case datetime():
            return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
        case date():
            return value.isoformat()
        case None | str():
            raise InvalidInput(f"{where!r} is {value!r}, which would put all such calls under one key")
    message = f"{where!r} is of type {type(value).__name__}; a key is made of str, int, bool, UUID, Enum and date"
    raise InvalidInput(message)


def _is_blank(character: str) -> bool:
    """Return whether a reader of the key cannot see the character or tell it from a space."""
    return character != " " and (character.isspace() or is_unseen(character) is not None)


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
