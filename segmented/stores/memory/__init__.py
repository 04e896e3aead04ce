"""The reference model: every operation in plain Python, for tests, the simulator and reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.protocol.model import MemoryModel
    from segmented.stores.memory.store import AsyncMemoryStore, MemoryStore

__all__ = ["AsyncMemoryStore", "MemoryModel", "MemoryStore"]

LATE: Final = from_modules(
    {
        "segmented.protocol.model": "MemoryModel",
        "segmented.stores.memory.store": "AsyncMemoryStore MemoryStore",
    }
)
"""Imported when asked for, and from where."""

if not TYPE_CHECKING:  # for a type checker every other name would exist, too
    __getattr__, __dir__ = late(__name__, LATE)
