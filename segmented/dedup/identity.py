"""Decide which calls are the same: the key of a call, and a fingerprint of its payload.

A key is a digest of the scope (the name of the task or function), the way the key is made, and typed values. It does
not reveal these values, so a personal number in an argument does not end up in Redis.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from segmented.errors import InvalidInput
from segmented.locks.call_keys import Call, CallKey, KeyExpression, Path, name_of
from segmented.models.ids import is_unseen, plain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

EXTRA: Final[dict[object, object]] = {inspect.Parameter.VAR_POSITIONAL: (), inspect.Parameter.VAR_KEYWORD: {}}
"""Values of `*arguments` and `**options` if none is given."""
KEY_LENGTH_MAX: Final = 255
"""Maximum length of an explicit idempotency key, as in the IETF draft on the Idempotency-Key header."""
DIGEST_LENGTH: Final = 32
"""Number of hexadecimal digits of SHA-256 that are kept: 128 bits."""
DEPTH_MAX: Final = 64
INTEGER_BITS_MAX: Final = 4_096
ENCODE: Final = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
PLAIN_INT_MAX: Final = 2**63
PLAIN: Final = frozenset({str, int, float, bool, type(None)})
SCALARS: Final[tuple[tuple[Any, str, Callable[[Any], list[Any]]], ...]] = (
    ((bytes, bytearray), "bytes", lambda value: [base64.b64encode(value).decode()]),
    # A datetime is a date too, so it comes first.
    *((kind, kind.__name__, lambda value: [value.isoformat()]) for kind in (datetime, date, time)),
    (timedelta, "timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    (Decimal, "Decimal", lambda value: [str(value)]),
    (UUID, "UUID", lambda value: [str(value)]),
)
"""Types with a text of their own, its name, and the parts of it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The key of a call, and the fingerprint of its payload ("" if there is nothing to compare)."""

    key: str
    payload_print: str


def checked_key(key: object, what: str = "an idempotency key") -> str:
    """Return an explicit key. Raises InvalidInput if it is empty, too long or not printable."""
    found = plain_text(key) if isinstance(key, str) else ""
    if not 1 <= len(found) <= KEY_LENGTH_MAX or is_unseen(found):
        raise InvalidInput(f"{what} is a text of 1 to {KEY_LENGTH_MAX} characters that can be printed, not {key!r:.80}")
    return found


def explicit_key(scope: str, key: str) -> str:
    """Return the record's key for a key that the caller chose."""
    return digest(canonical([scope, "given", checked_key(key)], "the key"))


def payload_print(payload: object) -> str:
    """Return the fingerprint of a payload."""
    return digest(canonical(payload, "the payload"))


class CallIdentity:
    """Computes the identity of one function's calls. Created once, when the function is decorated."""

    def __init__(
        self,
        scope: str,
        function: Callable[..., object],
        *,
        key: str | Callable[..., object] | None = None,
        payload: str | Callable[..., object] | bool = True,
        slot: Callable[[], str] | None = None,
        key_space: str | None = None,
    ) -> None:
        """Create the identity, and check both expressions against the function's signature (raises InvalidInput).

        `key`: an expression over the arguments such as `"{order.id}"`, a callable that takes the arguments, or None for
        all of them. `payload`: what else must be equal in a repeat; True for all arguments, False for nothing. `slot`
        returns a text that is part of each key. Functions of one `key_space` have equal keys for equal values, and
        different fingerprints.
        """
        self._scope = scope
        self._space = "" if key_space is None else f"key space {key_space}"
        self._slot = slot
        self._bound = CallKey(_whole_call, function)
        self._where = name_of(function)
        self._key = _Selection("key", key, function, self._where) if key is not None else None
        self._payload = None if isinstance(payload, bool) else _Selection("payload", payload, function, self._where)
        self._compares_all = payload is True
        made = "all" if self._key is None else "" if self._space else self._key.text  # others name it in another way
        self._head = canonical([self._space or scope, made], f"the key of {self._where}").removesuffix("]")
        defaults = dict(_defaults(self._bound.parameters))
        self._parts = [
            (name, canonical(name, "a name"), f"argument {name!r} of {self._where}", defaults.get(name))
            for name in sorted(self._bound.parameters)
        ]
        self._own = frozenset([name for name in self._bound.parameters if name in {"self", "cls"}][:1])
        self._omitted = self._own | {name for name in self._bound.parameters if self._key and self._key.reads(name)}

    def of(self, arguments: Sequence[Any], options: Mapping[str, Any], *, given: str | None = None) -> Identity:
        """Return the identity of one call; a `given` key, chosen by the caller, replaces the expression.

        Raises TypeError where the call itself would, and InvalidInput for an argument that has no stable text.
        """
        call = self._bound.bind(arguments, options)
        slot = [] if self._slot is None else [self._slot()]
        if given is not None:
            key = explicit_key(" ".join([self._space or self._scope, *slot]), given)
            return Identity(key, self._fingerprint(call, self._own))
        where = f"the key of {self._where}"
        if self._key is None:
            made = canonical(self._whole(call, frozenset()), where)
        else:
            found = [canonical(value, where, 2) for value in self._key.values(call)]
            made = ",".join(['["list"', *found]) + "]"
        text = ",".join([self._head, made, *(canonical(one, where) for one in slot)]) + "]"
        # all arguments are in a key without an expression
        return Identity(digest(text), "" if self._key is None else self._fingerprint(call, self._omitted))

    @property
    def made_of(self) -> str:
        """Return what keys and fingerprints are made of, for a comparison with another release of the function."""
        payload = self._compares_all if self._payload is None else self._payload.text
        space = f" in the {self._space}" if self._space else ""
        return f"{'all arguments' if self._key is None else self._key.text!r}, payload {payload!r}{space}"

    @property
    def said(self) -> tuple[str, str]:
        """Return the function, how its key is made, and what a repeat must have: names, as values may be private."""
        key = "" if self._key is None else self._key.text
        named = frozenset() if self._key is None else self._key.named
        others = [name for name in self._bound.parameters if name not in named]
        return f"{self._scope!r} keyed by {key!r}", ", ".join(others) if self._payload is None else self._payload.text

    def _fingerprint(self, call: Call, may_omit: frozenset[str]) -> str:
        found = self._payload_print(call, may_omit)
        return digest(canonical([self._scope, found], "the payload")) if self._space else found

    def _payload_print(self, call: Call, may_omit: frozenset[str]) -> str:
        if self._payload is not None:
            return digest(canonical(self._payload.values(call), f"the payload of {self._where}"))
        if not self._compares_all:
            return ""
        return digest(self._whole(call, may_omit))

    def _whole(self, call: Call, may_omit: frozenset[str]) -> str:
        """Return the text of all arguments that differ from their defaults.

        So a parameter with a default can be added, or removed, while old and new processes run. An object
        without a text form is left out if it may be: `self`, and an argument from which the key is made.
        """
        parts, arguments = [], call.arguments
        for name, quoted, where, default in self._parts:
            value = arguments[name]
            if name in may_omit and has_no_text(value):
                continue
            text = canonical(value, where)
            if text != default:
                parts.append(f"[{quoted},{text}]")
        return ",".join(parts)


def _defaults(parameters: Mapping[str, inspect.Parameter]) -> Iterator[tuple[str, str]]:
    """Yield the text of each default; extra arguments are none by default."""
    for name, one in parameters.items():
        default: object = one.default
        if one.kind in EXTRA:
            default = EXTRA[one.kind]
        if default is not inspect.Parameter.empty:
            with suppress(InvalidInput):
                yield name, canonical(default, "a default")


class _Selection:
    """Selects some of the arguments, by an expression or by a callable."""

    def __init__(
        self, what: str, selector: str | Callable[..., object], function: Callable[..., object], where: str
    ) -> None:
        self._paths: tuple[Path, ...] = ()
        self.named: frozenset[str] = frozenset()
        """The arguments that an expression names; none for a callable."""
        self._said = f"{what} expression {selector!r} of {where}"
        self._callable: Callable[..., object] | None = None
        if isinstance(selector, str):
            CallKey(selector, function)  # raises InvalidInput, naming expression and function
            self._paths = KeyExpression(selector).paths
            self.text = selector
            self.named = frozenset(path.argument for path in self._paths)
            if not self._paths:
                message = f"{what} expression {selector!r} of {where} names no argument, so all its calls would be one"
                raise InvalidInput(message)
        elif callable(selector):
            self._callable = selector
            self.text = "by a callable"
        else:
            raise InvalidInput(f"the {what} of {where} is an expression or a callable, not {selector!r}")

    def reads(self, argument: str) -> bool:
        """Return whether the selection reads an argument; a callable is given them all."""
        return self._callable is not None or argument in self.named

    def values(self, call: Call) -> list[object]:
        if self._callable is not None:
            return [call.give(self._callable)]
        return [call.read(path, self._said) for path in self._paths]


def _whole_call(*_: object, **__: object) -> str:
    """Replace an expression when only the binding of arguments is needed."""
    return "all"


class NoText(InvalidInput):
    """A value has no text form that is the same in every process."""


def has_no_text(value: object) -> bool:
    """Return whether the value itself has no text, rather than something in it: an object, not a dict with one."""
    if type(value) in PLAIN:
        return False
    try:
        _tagged(value, "it", DEPTH_MAX)  # what is in it would be too deep, which is another error
    except InvalidInput as error:
        return isinstance(error, NoText)
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
        raise InvalidInput(f"{where} is nested deeper than {DEPTH_MAX} levels, or holds itself")
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
        raise InvalidInput(f"{where} has the key {key!r}, which is not a text: JSON would change it")
    return [_checked_text(key, where), _tagged(item, f"{where}[{key!r}]", depth + 1)]


def _scalar(value: object, where: str, depth: int) -> list[Any]:
    if isinstance(value, Decimal) and not value.is_finite():
        raise InvalidInput(f"{where} is {value!r}, which equals nothing: it cannot be part of a key")
    for kind, name, parts_of in SCALARS:
        if isinstance(value, kind):
            return [name, *parts_of(value)]
    if is_dataclass(value) and not isinstance(value, type):
        parts = [
            [one.name, _tagged(getattr(value, one.name), f"{where}.{one.name}", depth + 1)] for one in fields(value)
        ]
        return ["dataclass", type(value).__qualname__, *parts]
    raise NoText(
        f"{where} is {type(value).__name__}, which has no text form that is the same in every process: "
        "name a part of it in the key expression, or give a callable"
    )


def _checked_number(number: float, where: str) -> float:
    if isinstance(number, int):
        if number.bit_length() > INTEGER_BITS_MAX:
            raise InvalidInput(f"{where} is a whole number of more than {INTEGER_BITS_MAX} bits")
        return number
    if not isfinite(number):
        raise InvalidInput(f"{where} is {number!r}, which equals nothing: it cannot be part of a key")
    return number + 0.0  # -0.0 becomes 0.0, which equals it


def _checked_text(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{where} holds a lone surrogate, which cannot be written: {text!r}") from error
    return plain_text(text)
