"""The peers of the suite, each with its pinned environment and adapters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ADAPTERS: Final = "bench.peers.adapters"


@dataclass(frozen=True, slots=True)
class Peer:
    """Another library."""

    name: str
    adapters: tuple[str, ...]
    """`MODULE:CLASS` of each of its locks."""

    @property
    def requirements(self) -> Path:
        """Return the file of pinned requirements."""
        return HERE / f"requirements-{self.name}.txt"


PEERS: Final = (
    Peer("redis-py", (f"{ADAPTERS}.redis_py:RedisPyLock", f"{ADAPTERS}.redis_py_asyncio:RedisPyAsyncLock")),
    Peer("python-redis-lock", (f"{ADAPTERS}.python_redis_lock:PythonRedisLock",)),
    Peer("pottery", (f"{ADAPTERS}.pottery_redlock:PotteryRedlock", f"{ADAPTERS}.pottery_aioredlock:PotteryAIORedlock")),
    Peer("sherlock", (f"{ADAPTERS}.sherlock_redis:SherlockRedisLock",)),
)
OURS: Final = "segmented"
"""The name of this library's own locks in the comparison."""
