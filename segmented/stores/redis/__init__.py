"""The store on Redis or Valkey: one Lua file per operation; sync and async share all that is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.protocol.wire import Dialect as Dialect
    from segmented.stores.redis.store import AsyncRedisStore as AsyncRedisStore, RedisStore as RedisStore

LATE: Final = from_modules(
    {"segmented.protocol.wire": "Dialect", "segmented.stores.redis.store": "AsyncRedisStore RedisStore"}
)
"""Names that are imported on first use, and their modules."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE)
