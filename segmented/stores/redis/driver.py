"""The differences between the supported versions of redis-py; everything else is public in all of them.

| | redis-py 5.0 to 6 | 7 | 8 |
| --- | --- | --- | --- |
| limit for one reply, with threads | `can_read(timeout)` before it | as before | `read_response(timeout=)` |
| close the clients of a Sentinel | one by one | as before | `Sentinel.close()`; one by one here too |
| a shard's channels in asyncio | none, so no asyncio on a cluster | none | `PubSub.ssubscribe` |
| another limit for what is sent later | none: that of the connect | `update_current_socket_timeout` | as before |

So before redis-py 8 the rest of a reply whose first bytes came in time, and a handshake, may take up to the socket's
own time-out longer than a caller's deadline.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, Final

from redis.asyncio.client import PubSub as AsyncPubSub
from redis.connection import AbstractConnection, Connection
from redis.exceptions import TimeoutError as RedisTimeoutError

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply

READS_WITH_A_LIMIT: Final = "timeout" in signature(Connection.read_response).parameters
SENDS_WITH_A_LIMIT: Final = hasattr(AbstractConnection, "update_current_socket_timeout")
CAN_BE_HASTY: Final = READS_WITH_A_LIMIT and SENDS_WITH_A_LIMIT
"""Whether a connection that was made within a short deadline can be given its own time-outs afterwards."""
LISTENS_TO_SHARDS: Final = hasattr(AsyncPubSub, "ssubscribe")
NO_REPLY: Final = "no reply in time"


def read_within(connection: Any, seconds: float) -> Reply:  # noqa: ANN401  # of the client's own class
    """Read a reply within a time. Raises the driver's TimeoutError, and the server's refusal."""
    if READS_WITH_A_LIMIT:
        return connection.read_response(timeout=seconds)
    if not connection.can_read(timeout=seconds):
        raise RedisTimeoutError(NO_REPLY)
    return connection.read_response()


def close_watchers(sentinel: Any) -> None:  # noqa: ANN401  # a Sentinel of redis-py
    """Disconnect the clients of a Sentinel."""
    for watcher in sentinel.sentinels:
        watcher.close()


async def close_async_watchers(sentinel: Any) -> None:  # noqa: ANN401  # a Sentinel of redis-py
    """Disconnect the clients of a Sentinel."""
    for watcher in sentinel.sentinels:
        await watcher.aclose()
