"""A pytest plugin for redis-py's own lock tests: it replaces redis-py's `Lock` with ours."""

import redis.asyncio.lock
import redis.lock

from segmented.compat import AsyncLock, Lock

redis.lock.Lock = Lock  # type: ignore[misc, assignment]  # the tests import it from there
redis.asyncio.lock.Lock = AsyncLock  # type: ignore[misc, assignment]  # as above
