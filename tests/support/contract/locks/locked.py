"""Decorated functions on a side: the same body, as a function for threads or as a coroutine function."""

import asyncio
from collections.abc import Callable
from functools import wraps
from typing import Any

from segmented.locks.locked_decorator import locked
from tests.fixtures.stores import AsyncSide, Side

TTL = 60.0


def locked_body(side: Side, expression: Any, body: Callable[..., Any], **options: Any) -> Callable[..., Any]:  # noqa: ANN401  # the body's own types
    """Return the body under `locked`, to be called from the test's thread."""
    given = {"store": side.store, "ttl": TTL, "timeout": 0, **options}
    if not isinstance(side, AsyncSide):
        found: Callable[..., Any] = locked(expression, **given)(body)
        return found

    @wraps(body)
    async def in_a_thread(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  # as above
        return await asyncio.to_thread(body, *arguments, **named)

    decorated = locked(expression, **given)(in_a_thread)

    @wraps(body)
    def call(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  # as above
        return side.wait(decorated(*arguments, **named))

    return call


def is_free(side: Side, name: str) -> bool:
    """Could somebody else lock the name now?"""
    lease = side.lock(name, ttl=TTL).try_acquire()
    if lease is None:
        return False
    lease.release()
    return True
