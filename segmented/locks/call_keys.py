"""The key of a call, computed from its bound arguments, defaults included, by a key expression or a callable.

A key expression makes a lock's name from the arguments, as in `"order:{order.activity_id}:{mobile}"`. The syntax is a
small part of that of format strings: a field is an argument followed by attributes and items (`{items[0].id}`,
`{payload[sku]}`), and a literal brace is doubled. Expressions call nothing, read no attribute with a leading
underscore, and have no conversions or format specifications. An expression is parsed once, when the function is
decorated, and evaluated once per call.

Two calls share a key exactly when the texts of all their parts are equal. In each part, `%` and every character between
two fields of the expression are escaped, so ("a-b", "c") and ("a", "b-c") never get the same key, neither in
`"{x}-{y}"` nor in `"{x}:{y}"`. For that, two fields need at least one character between them that is neither `%` nor a
hexadecimal digit.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from functools import partial
from itertools import groupby
from typing import Any, Final, Literal, ParamSpec
from uuid import UUID

from segmented.errors import InvalidInput
from segmented.locks.durations import checked_name
from segmented.models.ids import is_unseen, plain_text

ARGUMENT: Final = re.compile(r"[^\W\d]\w*")
STEP_FORM: Final = re.compile(r"\.(?P<attribute>[^\W\d]\w*)|\[(?P<item>[^\[\]]+)\]")
NUMBER: Final = re.compile(r"-?[0-9]+")
Step = tuple[Literal["attribute", "item"], Any]
"""How a path goes on, and to what: a whole number for a sequence or a mapping with such keys, otherwise a text."""
ESCAPE: Final = frozenset("%0123456789ABCDEF")
"""The characters of an escape, which therefore cannot separate two parts."""


@dataclass(frozen=True, slots=True)
class Path:
    """An argument and the steps from it to a value, such as `order.lines[0].sku`."""

    text: str
    argument: str
    steps: tuple[Step, ...]

    @classmethod
    def parse(cls, text: str) -> Path:
        """Parse a path. Raises InvalidInput, which says what is wrong in it."""
        start = ARGUMENT.match(text)
        if start is None:
            raise InvalidInput(f"{text!r} does not begin with the name of an argument")
        steps: list[Step] = []
        position = start.end()
        while position < len(text):
            found = STEP_FORM.match(text, position)
            if found is None:
                raise InvalidInput(f"{text!r} has {text[position:]!r}, which is neither .attribute nor [item]")
            steps.append(_step(text, found))
            position = found.end()
        return cls(text, start.group(), tuple(steps))

    def read(self, arguments: Mapping[str, object]) -> object:
        """Return the value at the path. Raises InvalidInput if a step fails."""
        found: Any = arguments[self.argument]
        for kind, name in self.steps:
            try:
                found = getattr(found, name) if kind == "attribute" else found[name]
            except (AttributeError, LookupError, TypeError) as error:
                is_item = kind == "attribute" and isinstance(found, dict) and name in found
                cure = f"; an item is read as [{name}]" if is_item else ""
                raise InvalidInput(f"{self.text!r} leads nowhere: {type(error).__name__}: {error}{cure}") from error
        return found


def _step(text: str, found: re.Match[str]) -> Step:
    attribute, item = found["attribute"], found["item"]
    if attribute is not None:
        if attribute.startswith("_"):
            raise InvalidInput(f"{text!r} reads {attribute!r}: attributes with a leading underscore are not read")
        return "attribute", attribute
    if item[0] in "\"'":
        raise InvalidInput(f"{text!r} has quotes in [{item}]: an item is written without")
    return "item", int(item) if NUMBER.fullmatch(item) else item


class KeyExpression:
    """A parsed expression, independent of a function; its user checks which arguments exist."""

    def __init__(self, text: str) -> None:
        self.text = text
        pieces = list(_pieces(text))
        if not text or any(is_unseen(piece) for piece in pieces if isinstance(piece, str)):
            raise InvalidInput("it is empty or holds characters that cannot be printed")
        self._pieces: list[str | Path] = []  # the characters between two fields are one piece
        for is_text, found in groupby(pieces, lambda piece: isinstance(piece, str)):
            run = list(found)
            self._pieces += ["".join(map(str, run))] if is_text else run
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


P = ParamSpec("P")
Shape = Literal["function", "generator function", "coroutine function", "async generator function"]

KEY_ATTRIBUTE: Final = "__segmented_key__"
"""The attribute in which a decorated function keeps its `CallKey`."""
NAMED: Final = frozenset({inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD})
FILLED: Final = frozenset({inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD})


def name_of(function: object) -> str:
    """Return the full name of a function, also of one inside a partial, for messages."""
    while isinstance(function, partial):
        function = function.func
    owner: Any = function if hasattr(function, "__qualname__") else type(function)
    module = getattr(owner, "__module__", None)
    return f"{module}.{owner.__qualname__}" if module else owner.__qualname__


def checked_function(function: object, decorator: str) -> None:
    """Raise InvalidInput for anything but a function: a class, or a static or class method object."""
    if isinstance(function, classmethod | staticmethod):
        message = f"{decorator} stands below @{type(function).__name__}, next to the function {name_of(function)}"
        raise InvalidInput(message)
    if isinstance(function, type) or not callable(function):
        message = f"{decorator} decorates a function, not {function!r}; a decorator without options needs its ()"
        raise InvalidInput(message)


def shape_of(function: Callable[..., Any]) -> Shape:
    """Return the kind of the function, also for a partial or a callable object."""
    if not (inspect.isroutine(function) or isinstance(function, partial)):
        function = type(function).__call__
    if inspect.iscoroutinefunction(function):
        return "coroutine function"
    if inspect.isasyncgenfunction(function):
        return "async generator function"
    return "generator function" if inspect.isgeneratorfunction(function) else "function"


class Call:
    """The bound arguments of one call."""

    def __init__(self, bound: inspect.BoundArguments, where: str) -> None:
        """Create the call from bound arguments with the defaults applied; `where` begins its error messages."""
        self._bound = bound
        self._where = where

    @property
    def arguments(self) -> Mapping[str, object]:
        """Return the arguments by name, defaults included."""
        return self._bound.arguments

    def give(self, function: Callable[..., object]) -> object:
        """Call `function` with the arguments of this call."""
        return function(*self._bound.args, **self._bound.kwargs)

    def read(self, path: Path, where: str = "") -> object:
        """Return the value at a path. Raises InvalidInput when there is none; `where` begins its message."""
        try:
            return path.read(self._bound.arguments)
        except InvalidInput as error:
            raise InvalidInput(f"{where or self._where}: {error}") from error

    def key(self, expression: KeyExpression | Callable[..., str], *, marked: bool) -> str:
        """Return the checked key; the expression is evaluated once."""
        try:
            if isinstance(expression, KeyExpression):
                return checked_name(expression.key(self._bound.arguments, marked=marked), "the key")
            return checked_name(expression(*self._bound.args, **self._bound.kwargs), "the key")
        except InvalidInput as error:
            raise InvalidInput(f"{self._where}: {error}") from error


class CallKey:
    """Computes the keys of the calls of one function."""

    def __init__(
        self,
        expression: str | Callable[..., str],
        function: Callable[..., object],
        *,
        filled: str | None = None,
        marked: bool = False,
    ) -> None:
        """Parse the expression and check it against the function's signature. Raises InvalidInput, which names both.

        `filled` is an argument that the decorator passes and the caller does not. A callable takes the function's
        arguments and returns the key; it is called once per call and does its own escaping. If `marked`, the parts of
        an expression's key are in braces, so that other expressions make other keys.
        """
        self._marked = marked
        shown = name_of(expression) if callable(expression) else repr(expression)
        self._where = f"key expression {shown} of {name_of(function)}"
        self._function = function
        self._target, self._head, self._named = _opened(function)
        self._signature = self._without(filled)
        parameters = self._signature.parameters
        self._defaults = {name: one.default for name, one in parameters.items()}
        self._positional = [name for name, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
        self._is_plain = all(one.kind in FILLED for one in parameters.values())
        if isinstance(expression, str):
            try:
                self._expression: KeyExpression | Callable[..., str] = KeyExpression(expression)
            except InvalidInput as error:
                raise InvalidInput(f"{self._where}: {error}") from error
            for path in self._expression.paths:
                self.require(path, self._where)
        elif callable(expression):
            self._expression = expression
        else:
            raise InvalidInput(f"{self._where} is neither a text nor a callable")

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """Return the function's parameters by name."""
        return self._signature.parameters

    def require(self, path: Path, where: str) -> None:
        """Raise InvalidInput for a path whose argument the function does not have."""
        if path.argument not in self._signature.parameters:
            there_are = ", ".join(self._signature.parameters) or "none"
            raise InvalidInput(f"{where}: {path.argument!r} is not an argument; there are {there_are}")

    def bind(self, arguments: Sequence[object], options: Mapping[str, object]) -> Call:
        """Bind the arguments of one call. Raises TypeError if the call itself would."""
        arguments, options = (*self._head, *arguments), {**self._named, **options}
        found = self._bound_plainly(arguments, options) if self._is_plain else None
        if found is not None:
            return Call(inspect.BoundArguments(self._signature, found), self._where)
        bound = self._signature.bind(*arguments, **options)
        bound.apply_defaults()
        return Call(bound, self._where)

    def _bound_plainly(self, arguments: tuple[object, ...], options: dict[str, object]) -> dict[str, object] | None:
        """Bind as `inspect` does, at a fifth of its cost; None if it has to say what is wrong."""
        if not options and len(arguments) == len(self._positional) == len(self._defaults):
            return dict(zip(self._positional, arguments, strict=True))
        given = dict(zip(self._positional, arguments, strict=False))
        if len(arguments) > len(given) or not self._defaults.keys() >= options.keys() or given.keys() & options.keys():
            return None
        found = {**self._defaults, **given, **options}
        return None if any(value is inspect.Parameter.empty for value in found.values()) else found

    def of(self, arguments: Sequence[object], options: Mapping[str, object]) -> str:
        """Return the key of one call."""
        return self.name(self.bind(arguments, options))

    def name(self, call: Call) -> str:
        """Return the key of a bound call."""
        return call.key(self._expression, marked=self._marked)

    def signature(self, filled: str) -> inspect.Signature:
        """Return the function's signature as callers see it, without the argument `filled`."""
        return _dropped(inspect.signature(self._function), filled)

    def _without(self, filled: str | None) -> inspect.Signature:
        try:
            signature = inspect.signature(self._target)
        except ValueError as error:
            raise InvalidInput(f"{self._where}: its signature cannot be read, so wrap it in a function") from error
        if filled is None:
            return signature
        names = list(signature.parameters)
        after = names[names.index(filled) :] if filled in names else []
        rest = [signature.parameters[name] for name in after]
        if not rest or rest[0].kind not in FILLED or not all(parameter.kind in NAMED for parameter in rest[1:]):
            raise InvalidInput(
                f"{name_of(self._function)} cannot be given its lease as {filled!r}: "
                "that must be an argument by name, or the last by position"
            )
        return _dropped(signature, filled)


def _dropped(signature: inspect.Signature, filled: str) -> inspect.Signature:
    kept = [parameter for name, parameter in signature.parameters.items() if name != filled]
    return signature.replace(parameters=kept)


def _opened(function: Callable[..., object]) -> tuple[Callable[..., object], tuple[object, ...], dict[str, Any]]:
    """Return the function inside a partial, and the arguments that the partial passes."""
    if isinstance(function, partial):
        return function.func, function.args, function.keywords
    return function, (), {}


def key_for(function: Callable[P, object], *arguments: P.args, **options: P.kwargs) -> str:
    """Return the key that a decorated function uses for a call with these arguments.

    Raises InvalidInput for a function that is not decorated by `locked` or a single flight.
    """
    found: CallKey | None = getattr(function, KEY_ATTRIBUTE, None)
    if found is None:
        raise InvalidInput(f"{name_of(function)} has no key expression")
    owner = (function.__self__,) if inspect.ismethod(function) else ()
    return found.of((*owner, *arguments), options)
