"""The connections of a store: separate from the client's, with the client's settings, within the client's limit.

A client's pool belongs to the user. redis-py's plain pool raises MaxConnectionsError as soon as it is asked for one
connection more than it allows. If a store took its connections from that pool, the user's own `get()` could fail, and
a pool of one connection could not listen and work at the same time. So a store does not use the pool. It reads the
pool's public settings (`connection_class`, `connection_kwargs`, `max_connections`) and opens its own connections:

- In all it opens at most the client's `max_connections` (and never more than CONNECTIONS_MAX + 1). One of them listens
  for wake-ups, the others run operations. With `max_connections=1` there is one of each.
- Further callers wait for a free connection until their deadline, and then get StoreBusy, because the server is not
  the cause.
- A connection that was idle for IDLE_SECONDS is closed while others work. `close()` closes all of them.

So the server sees at most twice the client's `max_connections`: the connections of the user's own calls, and those of
the store. The store's connections always return bytes, read as UTF-8 whatever the client's `encoding` is.

Before a store's first operation a server passes the same checks, for any client. They run on the store's own
connection, in the round trip that also learns the server's dialect, so they cost no wait of their own, hold to the
deadline of the operation, and need nothing of the user's client.

One check is of the rights of the account: each command of scripts and waiting calls is tried before the first
operation, because Redis does not roll back a script that lacks a right in the middle. The probe is a script itself, and
asks the server by `redis.acl_check_cmd`, which runs nothing and needs no right to ACL. A server without this function
has no such rules, and is not asked. An account may be limited to the keys of some names. The probe asks with a key of
each family, and where the account has no right to any of them it says nothing: the server then refuses a script by its
declared keys, before it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final

import redis
from redis import asyncio as redis_asyncio
from redis.asyncio.client import PubSub as AsyncPubSub
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.client import PubSub
from redis.exceptions import NoPermissionError, ResponseError
from redis.retry import Retry

from segmented.errors import InvalidInput
from segmented.protocol.wire import (
    IDENTITY,
    QUESTION,
    Command,
    Dialect,
    Exchange,
    Peer,
    Reply,
    Send,
    dialect_of,
    identity_of,
    is_of_cluster,
    text,
)
from segmented.stores.redis.addresses import Deployment
from segmented.stores.redis.edge import CONNECTIONS_MAX, TRIES, check_server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from segmented.stores.redis.edge import Eviction

IDLE_SECONDS: Final = 30.0
TURN_SECONDS: Final = 20.0
"""How long a caller without a deadline waits for a free connection; as in redis-py's own blocking pool."""
INFO: Final[Command] = ("INFO",)


@dataclass(frozen=True, slots=True)
class Connections:
    """The settings and the number of the connections to one server."""

    connection_class: Callable[..., Any]
    options: Mapping[str, Any] = field(repr=False)
    connections_max: int
    """The client's limit."""

    @property
    def wires_max(self) -> int:
        """Return the maximum number of connections that run operations; one more listens."""
        return max(1, min(CONNECTIONS_MAX, self.connections_max - 1))

    def make(self) -> Any:  # noqa: ANN401  # of the client's own class
        """Create a connection, which is not connected yet."""
        return self.connection_class(**self.options)

    def subscription(self, *, retries: int = TRIES - 1) -> PubSub:
        """Create a subscription for threads, on its own connection, which reconnects up to `retries` times."""
        options = {**self.options, "retry": Retry(NoBackoff(), retries)}
        return PubSub(redis.ConnectionPool(connection_class=self.connection_class, max_connections=1, **options))

    def async_subscription(self, *, retries: int = TRIES - 1) -> AsyncPubSub:
        """Create a subscription for asyncio, on its own connection, which reconnects up to `retries` times."""
        options = {**self.options, "retry": AsyncRetry(NoBackoff(), retries)}
        kind: Any = self.connection_class
        return AsyncPubSub(redis_asyncio.ConnectionPool(connection_class=kind, max_connections=1, **options))


def connections_of(pool: Any) -> Connections:  # noqa: ANN401  # a pool of redis-py, sync or async
    """Read the settings of a client's pool."""
    return connections_like(pool.connection_class, pool.connection_kwargs, pool.max_connections)


def connections_like(
    connection_class: Callable[..., Any], options: Mapping[str, Any], connections_max: int
) -> Connections:
    """Return these settings for our own connections, which return bytes."""
    return Connections(connection_class, {**options, "decode_responses": False}, connections_max)


class ServerCheck:
    """The checks of one server."""

    def __init__(self, where: str, eviction: Eviction, deployment: Deployment = Deployment.SINGLE) -> None:
        """Create the checks; `where` names the server in errors, and the store's `eviction` notes its policy."""
        self._where = where
        self._eviction = eviction
        self._deployment = deployment
        self.commands: Sequence[Command] = (INFO, *PROBES)

    def read(self, replies: Sequence[Reply]) -> None:
        """Read the replies to `commands`.

        Raises InvalidInput for a server that could lose locks or stock, and for an account that lacks a right.
        """
        said, *probed = replies
        if isinstance(said, NoPermissionError):
            message = f"the account of {self._where} may not run INFO, which is needed to check the server: {said}"
            raise InvalidInput(message)
        if isinstance(said, ResponseError):
            raise said
        found = dict(line.partition(":")[::2] for line in text(said).splitlines() if not line.startswith("#"))
        if self._deployment is not Deployment.SINGLE:  # there the role may change, and the links follow it
            found.pop("role", None)
        is_cluster = self._deployment is Deployment.CLUSTER
        check_server(self._where, found, is_cluster=is_cluster, eviction=self._eviction)
        for reply in probed:
            # an account may lack the right, and a server's configuration may have renamed the commands
            if isinstance(reply, ResponseError):
                words = f"the server at {self._where} runs no scripts for this account, but locks and stock need them"
                raise InvalidInput(f"{words}: {reply}") from reply
        check_rights(self._where, probed[0])


def greeting(check: ServerCheck | None, wanted: Dialect | None) -> Sequence[Command]:
    """Return the commands sent on a new connection before its first operation, in one round trip."""
    return (IDENTITY, *(() if wanted else (QUESTION,)), *(check.commands if check else ()))


def greeted(replies: Sequence[Reply], check: ServerCheck | None, wanted: Dialect | None) -> Peer:
    """Read the replies to `greeting`. Raises InvalidInput for an unusable server."""
    if check is not None:
        check.read(replies[-len(check.commands) :])
    return Peer(wanted or dialect_of(replies[1]), identity_of(replies[0]), is_of_cluster(replies[0]))


def pinging(*_: object) -> Exchange[None]:
    """Ask only whether the server answers."""
    yield Send((("PING",),))


def publishing(command: str, channel: str, word: str, *_: object) -> Exchange[None]:
    """Send one message; raise the server's refusal."""
    (reply,) = yield Send(((command, channel, word),))
    if isinstance(reply, ResponseError):
        raise reply


SAMPLES: Final = {
    "DEL": "",
    "EXISTS": "",
    "GET": "",
    "HDEL": "f",
    "HEXISTS": "f",
    "HGET": "f",
    "HGETALL": "",
    "HINCRBY": "f 1",
    "HKEYS": "",
    "HLEN": "",
    "HMGET": "f",
    "HSET": "f 1",
    "HSETNX": "f 1",
    "MGET": "",
    "PERSIST": "",
    "PEXPIRE": "1",
    "PEXPIREAT": "1",
    "PTTL": "",
    "SADD": "m",
    "SCARD": "",
    "SET": "1",
    "SISMEMBER": "m",
    "SREM": "m",
    "TYPE": "",
    "XADD": "* f 1",
    "XDEL": "1-1",
    "XLEN": "",
    "XRANGE": "- +",
    "XREVRANGE": "+ -",
    "XTRIM": "MAXLEN 1",
    "ZADD": "1 m",
    "ZCARD": "",
    "ZCOUNT": "0 1",
    "ZMSCORE": "m",
    "ZRANGE": "0 1",
    "ZRANGEBYSCORE": "0 1",
    "ZRANK": "m",
    "ZREM": "m",
    "ZREMRANGEBYSCORE": "0 1",
    "ZSCORE": "m",
}
"""Commands of the scripts, with arguments behind the key: the server's check needs a well-formed command."""
OTHERS: Final = ("TIME", "RENAME {key} {key}", "XINFO STREAM {key}", "PUBLISH {channel} 1", "SUBSCRIBE {channel}")
"""Those whose key, if any, is not their first argument alone. A channel is named as a key is."""
IN_CLUSTER: Final = ("SPUBLISH {channel} 1", "SSUBSCRIBE {channel}", "SUNSUBSCRIBE {channel}")
"""Further commands on a node of a cluster: scripts send messages by them, and processes get messages by them."""
CHANNELS: Final = frozenset(line.split()[0] for line in (*OTHERS, *IN_CLUSTER) if "{channel}" in line)
FAMILIES: Final = ("seg:{segmented}:rights", "seg:lock:{segmented}:rights", "seg:once:{segmented:0}:rights")
PROBE: Final = """#!lua flags=no-writes,allow-stale
local may_call = redis.acl_check_cmd or function() return true end
local lines, mode = ARGV[2], redis.pcall('INFO', 'cluster')
if type(mode) == 'string' and string.find(mode, 'cluster_enabled:1', 1, true) then
  lines = lines .. '\\n' .. ARGV[3]
end
local least = nil
for key in string.gmatch(ARGV[1], '%S+') do
  local missing, is_covered = {}, false
  for line in string.gmatch(lines, '[^\\n]+') do
    local words = {}
    for word in string.gmatch(line, '%S+') do
      words[#words + 1] = (word == '{key}' or word == '{channel}') and key or word
    end
    local is_known, may = pcall(may_call, unpack(words))
    if not (is_known and may) then
      missing[#missing + 1] = words[1]
    elseif string.find(line, '{key}', 1, true) then
      is_covered = true
    end
  end
  if is_covered and (not least or #missing < #least) then
    least = missing
  end
end
return least or {}
"""
"""Returns the commands that the account may not call with a key of the family where it may call the most.

None if it may use no such key. The script also runs when memory is full.
"""
LINES: Final = "\n".join([*(f"{name} {{key}} {rest}".rstrip() for name, rest in SAMPLES.items()), *OTHERS])
_ARGUMENTS: Final[Command] = (0, " ".join(FAMILIES), LINES, "\n".join(IN_CLUSTER))
PROBES: Final[Sequence[Command]] = (
    ("EVAL", PROBE, *_ARGUMENTS),
    ("EVALSHA", sha1(PROBE.encode(), usedforsecurity=False).hexdigest(), *_ARGUMENTS),
)


def check_rights(where: str, reply: Reply) -> None:
    """Read the reply to a probe. Raises InvalidInput for an account that lacks a right, and names the rule to add."""
    missing = [text(name) for name in reply]
    if not missing:
        return
    channels = " &seg:*" if CHANNELS.intersection(missing) else ""
    rules = " ".join(f"+{name.lower()}" for name in missing) + channels
    named = [f"{name} to the channels of its keys" if name in CHANNELS else name for name in missing]
    raise InvalidInput(
        f"the account of {where} may not {', '.join(named)}, which locks and stock need: "
        f"add the rule with ACL SETUSER <account> {rules}"
    )
