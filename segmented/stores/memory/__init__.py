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
"""Names that are imported on first use, and their modules."""

if not TYPE_CHECKING:  # otherwise a type checker would accept any name
    __getattr__, __dir__ = late(__name__, LATE)
