"""A caller of pools in both colours, who reads every key of the server behind their backs."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import redis

from segmented.errors import InvalidInput
from segmented.keys import HOLDS_NOTED, due_keys
from segmented.stock import AsyncPool, Pool
from segmented.stores.redis import AsyncRedisStore, RedisStore

Ask = Callable[[Any, Any], object]
"""Asks a pool of either colour something, with a value that may be wrong."""


DUTIES: Final = frozenset(map(str.encode, due_keys()))


class Caller:
    """Pools of both colours over one server of their own, and another client that reads every key."""

    def __init__(self, url: str) -> None:
        self.store = RedisStore.from_url(url)
        self.server = redis.Redis.from_url(url)
        self._runner = asyncio.Runner()
        self._async_store = self._runner.run(self._connected(url))

    async def _connected(self, url: str) -> AsyncRedisStore:
        return await AsyncRedisStore.from_url(url)

    def pools(self, sku: str = "mug", **times: Any) -> Iterator[Any]:  # noqa: ANN401  # ttl and hold, right or wrong
        yield Pool(self.store, sku, **times)
        yield AsyncPool(self._async_store, sku, **times)

    def ask(self, ask: Ask, pool: Any, given_value: object = None) -> object:  # noqa: ANN401  # of either colour
        async def awaited() -> object:
            answer = ask(pool, given_value)
            return await answer if inspect.isawaitable(answer) else answer

        return self._runner.run(awaited()) if isinstance(pool, AsyncPool) else ask(pool, given_value)

    def keys(self) -> dict[bytes, bytes | None]:
        """Return every key of the server, as it would be written to disk; of when workers look, only at which pools."""
        names = self.server.keys("*")
        kept = {bytes(name): self._kept(bytes(name)) for name in names}  # type: ignore[arg-type]  # not async
        kept.pop(HOLDS_NOTED.encode(), None)
        return kept

    def _kept(self, name: bytes) -> Any:  # noqa: ANN401  # bytes or members
        return sorted(self.server.zrange(name, 0, -1)) if name in DUTIES else self.server.dump(name)

    def refusal(self, ask: Ask, pool: Any, bad: object) -> str:  # noqa: ANN401  # of either colour
        """Return the sentence with which it is refused; not one key may be another afterwards."""
        before = self.keys()
        with pytest.raises(InvalidInput) as caught:
            self.ask(ask, pool, bad)
        assert self.keys() == before
        return str(caught.value)

    def close(self) -> None:
        self.store.close()
        self.server.close()
        self._runner.run(self._async_store.close())
        self._runner.close()
