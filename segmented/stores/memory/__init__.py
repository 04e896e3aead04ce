"""The reference model: every operation in plain Python, for tests, the simulator and reading."""

from segmented.stores.memory.model import MemoryModel
from segmented.stores.memory.store import AsyncMemoryStore, MemoryStore

__all__ = ["AsyncMemoryStore", "MemoryModel", "MemoryStore"]
