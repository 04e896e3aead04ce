"""Whether a store is for threads or for asyncio, and one sentence for a store that is neither or the wrong one."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, TypeGuard, TypeVar, cast

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from segmented.plans.drivers import AsyncStore, Store

GivenT = TypeVar("GivenT")


def is_async_store(store: object) -> TypeGuard[AsyncStore]:
    """Return whether it is a store for asyncio."""
    return inspect.iscoroutinefunction(_execute_of(store)) and not is_client(store)


def is_sync_store(store: object) -> TypeGuard[Store]:
    """Return whether it is a store for threads."""
    execute = _execute_of(store)
    return callable(execute) and not inspect.iscoroutinefunction(execute) and not is_client(store)


def _execute_of(store: object) -> object:
    """Return the class's own method: one that is put on a store, as tests do, may wrap either colour."""
    return getattr(type(store), "execute", None) or getattr(store, "execute", None)


def is_client(given: object) -> bool:
    """Return whether it is a client of a Redis library, a pipeline of one included, of which a store is made."""
    return any(
        kind.__module__.partition(".")[0] in {"redis", "valkey", "fakeredis", "glide"} for kind in type(given).__mro__
    )


def checked_sync(store: GivenT, who: str) -> GivenT:
    """Return a store for threads as it is; raises InvalidInput for anything else that `who` was given."""
    if not is_sync_store(cast("object", store)):
        raise wrong_store(store, who, is_async=False)
    return store


def checked_async(store: GivenT, who: str) -> GivenT:
    """Return a store for asyncio as it is; raises InvalidInput for anything else that `who` was given."""
    if not is_async_store(cast("object", store)):
        raise wrong_store(store, who, is_async=True)
    return store


def wrong_store(store: object, who: str, *, is_async: bool) -> InvalidInput:
    """Say what `who` needs in place of `store`."""
    wanted, use = ("AsyncRedisStore", "asyncio") if is_async else ("RedisStore", "threads")
    if is_client(store):
        return InvalidInput(f"{who} needs a store, and got the client {type(store).__name__}: give {wanted}(client)")
    return InvalidInput(f"{who} needs a store for {use}, such as {wanted}, and got {type(store).__name__}")
