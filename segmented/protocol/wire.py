"""Commands and replies on the wire, independent of RESP2, RESP3 and `decode_responses`.

The Lua files are in the folders of their concepts. Lines like `-- uses shared/pool.lua` at the top include a shared
part before the rest; `-- uses */kind.lua` includes the part of each kind of lock.

A line like `-- numbers 2:1 3 6?` names the arguments that are whole numbers, which the script checks before anything
else: the second from 1, the third and the sixth from 0, the sixth unless it is empty. `2:1:4096` has a maximum, too.

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

A cluster sends every PUBLISH to all its nodes, and an SPUBLISH only to those of the channel's slot. So in a cluster the
scripts and commands publish with SPUBLISH, and processes subscribe with SSUBSCRIBE where the slot is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from importlib import resources
from json import JSONEncoder
from typing import TYPE_CHECKING, Any, Final, TypeVar

from segmented.models.locks import Lost, Released
from segmented.values import light_dataclass

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

POSITION: Final = re.compile(r"([0-9]{1,15})-([0-9]{1,15})")
UNKNOWN_COMMAND: Final = re.compile(r"unknown command ['`](\w+)['`]")
"""The refusal of a server whose provider has renamed or removed a command."""
Reply = Any
"""A server's reply: bytes or str, int, None, lists of these, or a ResponseError."""
Command = Sequence[str | int]
Sight = tuple[int, int, int]
"""A name's progress as an answer reports it: epoch, sequence number and fencing token; 0 where it reports none."""


@light_dataclass(frozen=True, slots=True)
class Send:
    """Commands for one connection, sent together; `patience` is how long the server may block on purpose."""

    commands: Sequence[Command]
    patience: float = 0.0


AnswerT = TypeVar("AnswerT")
Exchange = Generator[Send, list[Reply], AnswerT]
"""A conversation on one connection: yields what to send, receives the replies, returns the answer."""
Finish = Generator[Any, Any, Any]
MakeExchange = Callable[["Peer", int], Exchange[AnswerT]]
"""Creates an exchange for the server of a connection, and the number of the attempt, from 1."""


@dataclass(slots=True)
class Call:
    """One command: a script with its keys and arguments or, without a script, the plain command in `arguments`."""

    script: Script | None
    keys: Sequence[str]
    arguments: Sequence[str | int]

    @property
    def key(self) -> str:
        """The key that decides which server of a cluster gets the command."""
        return self.keys[0] if self.script is not None else str(self.arguments[1])


def script_call(name: str, keys: Sequence[str], *arguments: str | int | None) -> Call:
    """Create a call of the script `<name>.lua`; None is sent as an empty text."""
    return Call(load_script(name), keys, ["" if one is None else one for one in arguments])


def plain_call(*arguments: str | int) -> Call:
    """Create a plain command; its first argument is its key."""
    return Call(None, (), arguments)


SCAN_COUNT: Final = 1_000


def scan_call(command: str, key: str, cursor: int, count: int = SCAN_COUNT) -> Call:
    """Create a call of HSCAN or ZSCAN for one page of a key."""
    return plain_call(command, key, cursor, "COUNT", count)


json_text: Final[Callable[[Any], str]] = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Encodes many values as one argument, which a script reads in a third of the time that many arguments take."""


def text(value: Reply) -> str:
    """Decode a string that may arrive as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def readable(value: Reply) -> str:
    """Decode a string that another program may have written in another encoding."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def pairs_in(found: Reply) -> Iterable[tuple[Reply, Reply]]:
    """Return the pairs in a reply that is a map, or that HSCAN or ZSCAN has returned, in any of its shapes."""
    if isinstance(found, dict):
        return found.items()
    if found and isinstance(found[0], list | tuple):  # of a sorted set, in RESP3
        return found  # type: ignore[no-any-return]  # a list of pairs
    return zip(found[::2], found[1::2], strict=True)


def position(said: str) -> tuple[int, int]:
    """Read an epoch and a sequence number, joined by "-"; zeros if another program wrote something else."""
    found = POSITION.fullmatch(said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def optional_number(value: Reply) -> int | None:
    """Read a number; None for -1 and "", which scripts return for no number."""
    found = text(value)
    return None if found in ("", "-1") else int(found)


def replicas_wait(replicas: int, within_ms: int) -> Command:
    """Return the command that waits until that many replicas have the connection's last write."""
    return ("WAIT", replicas, within_ms)


def counted(reply: Reply) -> int:
    """Read how many acknowledged; of WAITAOF, whether the server's own disk did. Raises the server's refusal."""
    if isinstance(reply, Exception):
        raise reply
    return int(reply[0]) if isinstance(reply, list) else int(reply)


def awaited(wait: Command) -> Exchange[int]:
    """Wait for replicas after the connection's last write, in a round trip of its own."""
    (reply,) = yield Send((wait,), patience=int(wait[-1]) / 1000)
    return counted(reply)


def unsure_if_lost(answer: Released | Lost) -> Released | Lost:
    """Read the answer to a repeated release: the first one, whose reply was lost, may have released the lock."""
    return replace(answer, is_unsure=True) if isinstance(answer, Lost) else answer


def always(_: object, *, is_gated: bool) -> bool:  # noqa: ARG001  # as `Operation.acknowledges` is called
    """Return True: `acknowledges` of an operation whose every answer may promise a change."""
    return True


@light_dataclass(frozen=True, slots=True)
class Script:
    """A script's whole text and the digest under which a server caches it."""

    name: str
    text: str
    sha: str
    takes_seen: bool = False
    """Whether it has an argument for what the caller's process has seen (`Seen` of the store)."""
    takes_call: bool = False
    """Whether its last argument is the name of the call, which another attempt after a lost reply repeats."""
    writes: bool = True
    in_cluster: Script | None = None
    """The form for a node of a cluster; None of that form itself."""


PUBLISH: Final = "PUBLISH"
SHARDED: Final = "SPUBLISH"


def sharded(commands: Sequence[Command]) -> Sequence[Command]:
    """Return the form of commands for a node of a cluster."""
    return [(SHARDED, *command[1:]) if command[0] == PUBLISH else command for command in commands]


_WORD: Final = re.compile(r"\w+")
NUMBERS: Final = "-- numbers "
NUMBER_MAX: Final = 2**53
"""Larger numbers are not exact in a script."""
CHECK: Final = """\
  local function check(place, least, most)
    local text = ARGV[place]
    local number = string.find(text, '^%d+$') and tonumber(text)
    if not number or number < least or number > most then
      error({ err = 'INVALID argument ' .. place .. ': a whole number from ' .. least .. ' is needed' })
    end
  end
"""
TAKES_SEEN: Final = "local seen_epoch"
TAKES_CALL: Final = "local this_call"
"""How a script takes what was seen, and the name of the call: it removes them from the end of its arguments."""


@cache
def load_script(name: str) -> Script:
    """Read `<name>.lua` of any concept with the shared parts that it uses. Raises FileNotFoundError."""
    top = resources.files("segmented.protocol")
    places = (folder / f"{name}.lua" for folder in top.iterdir())
    found = next((place for place in places if place.is_file()), top / f"{name}.lua")
    shebang, *rest = found.read_text(encoding="utf-8").splitlines()
    text = "\n".join([shebang, *_checks(rest), *_needed(_with_shared(top, rest))]) + "\n"
    in_cluster = _script(name, text.replace(f"'{PUBLISH}'", f"'{SHARDED}'"))
    return replace(_script(name, text), in_cluster=in_cluster)


def _script(name: str, text: str) -> Script:
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(name, text, sha, TAKES_SEEN in text, TAKES_CALL in text, "no-writes" not in text.split("\n", 1)[0])


def _with_shared(top: Traversable, lines: list[str]) -> list[str]:
    shared: list[str] = []
    while lines[0].startswith("-- uses "):
        for part in _parts(top, lines.pop(0).removeprefix("-- uses ")):
            shared += _with_shared(top, part.read_text(encoding="utf-8").splitlines())
    return shared + lines


def _checks(lines: list[str]) -> list[str]:
    """Return the check of the numbers that a script names: a text that is none would fail it between two writes."""
    said = next((line.removeprefix(NUMBERS) for line in lines if line.startswith(NUMBERS)), "")
    calls = []
    for number in said.split():
        place, least, most, *_ = [*number.split(":"), *("0", str(NUMBER_MAX))[number.count(":") :]]
        bare = place.removesuffix("?")
        call = f"check({bare}, {least}, {most})"
        calls.append(f"  if ARGV[{bare}] ~= '' then {call} end" if place != bare else f"  {call}")
    return ["do", *CHECK.splitlines(), *calls, "end"] if calls else []


def _needed(lines: list[str]) -> list[str]:
    """Leave out each function that no later line names: every call of a script pays for all that it defines."""
    blocks: list[list[str]] = []
    for line in lines:
        is_inside = bool(blocks) and blocks[-1][0].startswith("local function ") and blocks[-1][-1] != "end"
        if is_inside:
            blocks[-1].append(line)
        else:
            blocks.append([line])
    kept: list[list[str]] = []
    named: set[str] = set()
    for block in reversed(blocks):
        if len(block) == 1 or _WORD.findall(block[0])[2] in named:
            kept.append(block)
            named.update(word for line in block for word in _WORD.findall(line.partition("--")[0]))
    return [line for block in reversed(kept) for line in block]


def _parts(top: Traversable, name: str) -> list[Traversable]:
    """Return the part of this name; for `*/name` each folder's, in the order of the folders."""
    folder, _, file = name.partition("/")
    if folder != "*":
        return [top / folder / file]
    places = (each / file for each in sorted(top.iterdir(), key=lambda each: each.name))
    return [place for place in places if place.is_file()]


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


@light_dataclass(frozen=True, slots=True)
class Peer:
    """The server at the other end of a connection, as it answered the greeting."""

    dialect: Dialect
    server: str = "?"
    """Its identity, which is another after a restart and on a promoted replica; "?" if it does not tell."""
    is_cluster: bool = False
    """Whether it is a node of a cluster."""


IDENTITY: Final[Command] = ("INFO", "server", "cluster")
IDENTITY_LENGTH: Final = 16
"""Characters of the run id that are compared, because each call carries them: 64 random bits."""


def identity_of(reply: Reply) -> str:
    """Read the reply to IDENTITY. Any error, and a server without a run id, means "?"."""
    found = None if isinstance(reply, Exception) else re.search(r"^run_id:(\w+)", text(reply), re.MULTILINE)
    return found[1][:IDENTITY_LENGTH] if found else "?"


def is_of_cluster(reply: Reply) -> bool:
    """Read from the reply to IDENTITY whether the server is a node of a cluster."""
    return not isinstance(reply, Exception) and "cluster_enabled:1" in text(reply)


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
