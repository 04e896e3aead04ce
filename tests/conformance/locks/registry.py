"""The libraries whose locks are compared, each with its pinned environment and adapters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.environments import Environment

HERE: Final = Path(__file__).parent
ADAPTERS: Final = "tests.conformance.locks.adapters"


@dataclass(frozen=True, slots=True)
class Peer(Environment):
    """Another library."""

    adapters: tuple[str, ...] = ()
    """`MODULE:CLASS` of each of its locks."""


PEERS: Final = (
    Peer("redis-py", HERE, adapters=(f"{ADAPTERS}.redis_py:RedisPyLock", f"{ADAPTERS}.redis_py:RedisPyAsyncLock")),
    Peer("python-redis-lock", HERE, adapters=(f"{ADAPTERS}.python_redis_lock:PythonRedisLock",)),
    Peer(
        "pottery",
        HERE,
        adapters=(f"{ADAPTERS}.pottery_redlocks:PotteryRedlock", f"{ADAPTERS}.pottery_redlocks:PotteryAIORedlock"),
    ),
    Peer("sherlock", HERE, adapters=(f"{ADAPTERS}.sherlock_redis:SherlockRedisLock",)),
)
OURS: Final = "segmented"
"""The name of this library's own locks in the comparison."""
