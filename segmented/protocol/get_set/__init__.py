"""The plain commands of the historical lock. Unlike all other operations, they are not safe to run twice.

This is how the lock worked: a SETNX repeated after a lost reply finds its own value, and takes it for another's. Kept
for study; use `AcquireLock` instead.
"""

from __future__ import annotations

from segmented.keys import lock_keys
from segmented.protocol.base import Operation, is_one
from segmented.protocol.wire import Call, Reply, plain_call, text
from segmented.values import light_dataclass


@light_dataclass(frozen=True, slots=True)
class SetNx(Operation[bool]):
    """SETNX: write `value` if the key of the lock `name` does not exist. True if it was written."""

    name: str
    value: str

    def call(self) -> Call:
        return plain_call("SETNX", lock_keys(self.name).lock, self.value)

    answer = is_one


@light_dataclass(frozen=True, slots=True)
class GetValue(Operation[str]):
    """GET: read the key of the lock `name`; empty if there is none."""

    name: str

    def call(self) -> Call:
        return plain_call("GET", lock_keys(self.name).lock)

    def answer(self, reply: Reply) -> str:
        return "" if reply is None else text(reply)


@light_dataclass(frozen=True, slots=True)
class GetSet(Operation[str]):
    """GETSET: write `value` unconditionally, and return the previous value; empty if there was none."""

    name: str
    value: str

    def call(self) -> Call:
        return plain_call("GETSET", lock_keys(self.name).lock, self.value)

    def answer(self, reply: Reply) -> str:
        return "" if reply is None else text(reply)


@light_dataclass(frozen=True, slots=True)
class DeleteValue(Operation[bool]):
    """DEL: delete the key of the lock `name`, no matter which client wrote it. True if there was one."""

    name: str

    def call(self) -> Call:
        return plain_call("DEL", lock_keys(self.name).lock)

    answer = is_one
