"""Commands and replies on the wire, independent of RESP2, RESP3 and `decode_responses`.

The Lua files are in the folders of their concepts. Lines like `-- uses shared/pool.lua` after the first line include
a shared part before the rest.

A `Dialect` says which commands a server has for compare-and-delete and compare-and-set. It is detected once per
connection.

| dialect | compare-and-delete | compare-and-set | servers |
| --- | --- | --- | --- |
| `VALKEY` | `DELIFEQ key value` | `SET key value IFEQ value PX ms` | Valkey 9.0 and newer |
| `REDIS` | `DELEX key IFEQ value` | `SET key value IFEQ value PX ms` | Redis 8.4 and newer |
| `TAIR` | `CAD key value` | `CAS key old new PX ms` | Tair |
| `SCRIPT` | a Lua script | a Lua script | all others |

A compare-and-set always carries PX: without it the key would never expire. The client checks for the commands, not for
the version, so that it also uses them on forks and managed services.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import resources
from typing import Any, Final, Protocol, TypeVar

from redis.exceptions import ResponseError

from segmented.models.locks import Lost, Released, Renewed

pack_command: Callable[[Any], bytes] | None = None
Reply = Any
"""A server's reply: bytes or str, int, None, lists of these, or a ResponseError."""
Command = Sequence[str | int]


with suppress(ImportError):  # an optional dependency, which is faster
    from hiredis import pack_command


@dataclass(slots=True)  # neither this nor Call is frozen: each operation creates one, and frozen takes twice as long
class Send:
    """Commands for one connection, sent together; `patience` is how long the server may block on purpose."""

    commands: Sequence[Command]
    patience: float = 0.0


AnswerT = TypeVar("AnswerT")
Exchange = Generator[Send, list[Reply], AnswerT]
"""A conversation on one connection: yields what to send, receives the replies, returns the answer."""
MakeExchange = Callable[["Dialect", int], Exchange[AnswerT]]
"""Creates an exchange from a server's dialect and the number of the attempt, from 1."""


def one_reply(call: Call) -> Exchange[Reply]:
    """Repeat a script that this connection has just run, with other arguments. Raises the server's error."""
    (reply,) = yield Send((call.command(),))
    if isinstance(reply, ResponseError):
        raise reply
    return reply


def packed(commands: Sequence[Command]) -> bytes:
    """Encode commands for the wire. Faster than the driver's packer, which supports more types."""
    if pack_command is not None:
        return b"".join([pack_command(tuple(command)) for command in commands])
    pieces: list[str] = []
    for command in commands:
        pieces.append(f"*{len(command)}\r\n")
        for argument in command:
            said = argument if type(argument) is str else str(argument)
            pieces.append(f"${len(said) if said.isascii() else len(said.encode())}\r\n{said}\r\n")
    return "".join(pieces).encode()


@dataclass(slots=True)
class Call:
    """One command: a script with its keys and arguments or, without a script, the plain command in `arguments`."""

    script: Script | None
    keys: Sequence[str]
    arguments: Sequence[str | int]

    def command(self) -> Command:
        """Return the command, with the script by its digest."""
        if self.script is None:
            return self.arguments
        return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.arguments)

    def full_command(self) -> Command:
        """Return the command with the script's text, which also caches it."""
        if self.script is None:
            return self.arguments
        return ("EVAL", self.script.text, len(self.keys), *self.keys, *self.arguments)

    @property
    def key(self) -> str:
        """The key that decides which server of a cluster gets the command."""
        return self.keys[0] if self.script is not None else str(self.arguments[1])


def script_call(name: str, keys: Sequence[str], *arguments: str | int) -> Call:
    """Create a call of the script `<name>.lua`."""
    return Call(load_script(name), keys, arguments)


def plain_call(*arguments: str | int) -> Call:
    """Create a plain command; its first argument is its key."""
    return Call(None, (), arguments)


def text(value: Reply) -> str:
    """Decode a string that may arrive as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def readable(value: Reply) -> str:
    """Decode a string that another program may have written in another encoding."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def optional_number(value: Reply) -> int | None:
    """Read a number; None for -1 and "", which scripts return for no number."""
    found = text(value)
    return None if found in ("", "-1") else int(found)


class Timed(Protocol):
    """An operation that requests a time to live, in milliseconds."""

    @property
    def ttl_ms(self) -> int:
        """The lease's time to live."""


def renewed_or_lost(operation: Timed, reply: Reply) -> Renewed | Lost:
    """Read the answer to a renewal of any kind of lock."""
    return Renewed(operation.ttl_ms) if text(reply[0]) == "renewed" else Lost()


def released_or_lost(_: object, reply: Reply) -> Released | Lost:
    """Read the answer to a release of any kind of lock."""
    return Released() if text(reply[0]) == "released" else Lost()


def unsure_if_lost(answer: Released | Lost) -> Released | Lost:
    """Read the answer to a repeated release: the first one, whose reply was lost, may have released the lock."""
    return Lost(is_unsure=True) if isinstance(answer, Lost) else answer


Encode = Callable[[Any], Call]
Decode = Callable[[Any, Reply], Any]
"""Takes the operation and the reply; returns the answer."""


@dataclass(frozen=True, slots=True)
class Native:
    """An operation as plain commands of the server, where its dialect has them."""

    encode: Callable[[Any, Dialect], Sequence[Command]]
    """Returns the commands; none if this operation needs the script."""
    decode: Callable[[Any, Sequence[Reply]], Any]
    """Returns the answer; None if only the script can give it."""


@dataclass(frozen=True, slots=True)
class Codec:
    """How one kind of operation is sent and read."""

    encode: Encode
    decode: Decode
    native: Native | None = None
    finish: Callable[[Any, Any], Exchange[Any]] | None = None
    """Continues on the same connection: takes the operation and its answer, returns the final answer."""
    wakes: Callable[[Any], tuple[str, str] | None] | None = None
    """For a possible release: returns the waiters' channel and the holder id that its message carries."""
    doubt: Callable[[Any], Any] | None = None
    """Reads the answer to a repeat after a lost reply: the first attempt may have taken effect."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script's whole text and the digest under which a server caches it."""

    name: str
    text: str
    sha: str


@cache
def load_script(name: str) -> Script:
    """Read `<name>.lua` of any concept with the shared parts that it uses. Raises FileNotFoundError."""
    top = resources.files("segmented.protocol")
    places = (folder / f"{name}.lua" for folder in top.iterdir())
    found = next((place for place in places if place.is_file()), top / f"{name}.lua")
    lines = found.read_text(encoding="utf-8").splitlines()
    shebang, rest = lines[0], lines[1:]
    shared: list[str] = []
    while rest[0].startswith("-- uses "):
        shared += (top / rest.pop(0).removeprefix("-- uses ")).read_text(encoding="utf-8").splitlines()
    text = "\n".join([shebang, *shared, *rest]) + "\n"
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


class Dialect(Enum):
    """How a server compares and deletes; the value is the command's name."""

    VALKEY = "DELIFEQ"
    REDIS = "DELEX"
    TAIR = "CAD"
    SCRIPT = "a script"

    def compare_and_delete(self, key: str, value: str) -> Command:
        """Return the command that deletes `key` if it holds `value`; its reply is 1 or 0. Not for SCRIPT."""
        return ("DELEX", key, "IFEQ", value) if self is Dialect.REDIS else (self._value_, key, value)

    def compare_and_keep(self, key: str, value: str, ttl_ms: int) -> Command:
        """Return the command that expires `key` in `ttl_ms` if it holds `value`.

        Its reply is OK or 1 on success, and nil, 0 or a negative number otherwise. Not for SCRIPT.
        """
        if self is Dialect.TAIR:
            return ("CAS", key, value, value, "PX", ttl_ms)
        return ("SET", key, value, "IFEQ", value, "PX", ttl_ms)


_ASKED: Final = (Dialect.VALKEY, Dialect.REDIS, Dialect.TAIR)
QUESTION: Final[Command] = ("COMMAND", "INFO", *(dialect.value for dialect in _ASKED))


def dialect_of(reply: Reply) -> Dialect:
    """Read the reply to QUESTION: one entry a command, empty for an unknown one. Any error means SCRIPT."""
    if isinstance(reply, dict):  # RESP3 of some versions: name -> details
        known = {
            str(name.decode() if isinstance(name, bytes) else name).upper() for name, found in reply.items() if found
        }
        return next((dialect for dialect in _ASKED if dialect.value in known), Dialect.SCRIPT)
    if not isinstance(reply, list) or len(reply) != len(_ASKED):
        return Dialect.SCRIPT
    return next((dialect for dialect, found in zip(_ASKED, reply, strict=True) if found), Dialect.SCRIPT)
