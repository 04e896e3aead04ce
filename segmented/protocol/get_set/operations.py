"""The plain commands of the historical lock. Unlike all other operations they are not safe to run twice.

That is how it was done: a SETNX whose reply was lost finds its own value when it is sent again, and takes it for
another's. Kept to study; `AcquireLock` is what to use.
"""

from __future__ import annotations

from dataclasses import dataclass

from segmented.protocol.base import Operation


@dataclass(frozen=True, slots=True)
class SetNx(Operation[bool]):
    """SETNX: write `value` if the key of the lock `name` does not exist. True when it was written."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class GetValue(Operation[str]):
    """GET: read the key of the lock `name`; empty when there is none."""

    name: str


@dataclass(frozen=True, slots=True)
class GetSet(Operation[str]):
    """GETSET: write `value`, whatever was there, and return what was there; empty when nothing was."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class DeleteValue(Operation[bool]):
    """DEL: delete the key of the lock `name`, whoever wrote it. True when there was one."""

    name: str
