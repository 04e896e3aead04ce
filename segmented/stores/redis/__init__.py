"""The store on Redis or Valkey: one Lua file an operation, sync and async over the same codec."""

from segmented.stores.redis.asynchronous import AsyncRedisStore
from segmented.stores.redis.store import RedisStore

__all__ = ["AsyncRedisStore", "RedisStore"]
