"""The store on Redis or Valkey: one Lua file an operation, sync and async over the same codec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.stores.redis.asynchronous import AsyncRedisStore
    from segmented.stores.redis.store import RedisStore

__all__ = ["AsyncRedisStore", "RedisStore"]

LATE: Final = from_modules(
    {
        "segmented.stores.redis.asynchronous": "AsyncRedisStore",
        "segmented.stores.redis.store": "RedisStore",
    }
)
"""Imported when asked for, and from where."""

if not TYPE_CHECKING:  # for a type checker every other name would exist, too
    __getattr__, __dir__ = late(__name__, LATE)
