"""Which commands of its own a server has for compare-and-delete and compare-and-set; found out once a connection.

| dialect | compare-and-delete | compare-and-set | servers |
| --- | --- | --- | --- |
| `VALKEY` | `DELIFEQ key value` | `SET key value IFEQ value PX ms` | Valkey 9.0 and newer |
| `REDIS` | `DELEX key IFEQ value` | `SET key value IFEQ value PX ms` | Redis 8.4 and newer |
| `TAIR` | `CAD key value` | `CAS key old new PX ms` | Tair |
| `SCRIPT` | a Lua script | a Lua script | all others |

A compare-and-set always carries PX: without it the key would never lapse. A server is asked for the commands, not for
its version, so that a fork or a managed service that has them is served by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final

Reply = Any
"""A server's reply: bytes or str, int, None, lists of these, or the ResponseError that it was."""
Command = Sequence[str | int]


class Dialect(Enum):
    """How a server compares and deletes; the value is the name of its command."""

    VALKEY = "DELIFEQ"
    REDIS = "DELEX"
    TAIR = "CAD"
    SCRIPT = "a script"

    def compare_and_delete(self, key: str, value: str) -> Command:
        """Delete `key` if it holds `value`: 1, else 0. Not for SCRIPT."""
        return ("DELEX", key, "IFEQ", value) if self is Dialect.REDIS else (self._value_, key, value)

    def compare_and_keep(self, key: str, value: str, ttl_ms: int) -> Command:
        """Let `key` live for `ttl_ms` from now if it holds `value`: OK or 1, else nil, 0 or less. Not for SCRIPT."""
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
