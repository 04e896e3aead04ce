"""What goes over the wire and what comes back, without regard to RESP2, RESP3 or `decode_responses`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from segmented.stores.redis.scripts import Script, load_script

Reply = Any
"""A server's reply: bytes or str, int, None, or lists of these."""


@dataclass(frozen=True, slots=True)
class Call:
    """One command: a script with its keys and arguments, or, without a script, the plain command in `arguments`."""

    script: Script | None
    keys: Sequence[str]
    arguments: Sequence[str | int]


def script_call(name: str, keys: Sequence[str], *arguments: str | int) -> Call:
    """Call `lua/<name>.lua`."""
    return Call(load_script(name), keys, arguments)


def plain_call(*arguments: str | int) -> Call:
    """Send a command as it is."""
    return Call(None, (), arguments)


def text(value: Reply) -> str:
    """Read a string that may come as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def optional_number(value: Reply) -> int | None:
    """Read a number for which the scripts say -1 or "" when there is none."""
    found = text(value)
    return None if found in ("", "-1") else int(found)


Encode = Callable[[Any], Call]
Decode = Callable[[Any, Reply], object]
"""Takes the operation and the reply; returns the answer."""


@dataclass(frozen=True, slots=True)
class Codec:
    """How one kind of operation is sent and read."""

    encode: Encode
    decode: Decode
