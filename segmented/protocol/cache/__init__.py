"""Operations on cached values, each kept beside the lock of its name."""

from __future__ import annotations

from typing import ClassVar, Final, cast

from segmented.keys import cache_keys
from segmented.models import Acquired, Cached, CachedKind, Forgotten, Held, MayLoad, Outpaced, Uncached, Written
from segmented.protocol.base import Operation
from segmented.protocol.wire import Call, Reply, Sight, optional_number, plain_call, script_call, text
from segmented.values import light_dataclass

FENCE_IDLE_MS: Final = 3600 * 1000
"""How long the fence of an idle value is kept. A value that takes longer to load is not kept: it may be outdated."""


@light_dataclass(frozen=True, slots=True)
class ReadCached(Operation[Cached | Uncached]):
    """Read the value cached under a name."""

    name: str

    def call(self) -> Call:
        return plain_call("HMGET", cache_keys(self.name).cached, "kind", "body")

    def answer(self, reply: Reply) -> Cached | Uncached:
        return Uncached() if reply[0] is None else _cached(*reply)


@light_dataclass(frozen=True, slots=True)
class ReadOrAcquire(Operation[Cached | Held | MayLoad]):
    """Read the cached value; if it is missing or due for a refresh, take the lock for `ttl_ms`.

    While another caller holds the lock, an old value is returned and a missing one waited for. Only one caller per
    `hold_off_ms` gets to refresh a due value. A repeat by the same holder id gets the same answer, or releases the lock
    if a value has been written since.
    """

    lease_kind: ClassVar = "cache"
    name: str
    holder_id: str
    ttl_ms: int
    hold_off_ms: int

    def call(self) -> Call:
        keys = cache_keys(self.name).listed()
        lease = (self.ttl_ms, FENCE_IDLE_MS + self.ttl_ms)
        return script_call("read_or_acquire", keys, self.holder_id, *lease, self.hold_off_ms)

    def answer(self, reply: Reply) -> Cached | Held | MayLoad:
        match text(reply[0]):
            case "cached":
                return _cached(*reply[1:])
            case "held":
                return Held(optional_number(reply[1]))
        acquired = Acquired(int(reply[1]), self.ttl_ms, replay=text(reply[2]) == "1")
        return MayLoad(acquired, _cached(*reply[3:]) if text(reply[3]) else None)

    def sight(self, _: Reply, answer: Cached | Held | MayLoad) -> Sight | None:
        return (0, 0, answer.acquired.fencing_token) if isinstance(answer, MayLoad) else None


@light_dataclass(frozen=True, slots=True)
class WriteCached(Operation[Written | Outpaced]):
    """Keep a value for `ttl_ms`, due for a refresh after `refresh_in_ms`, unless a newer token has written.

    A value forgotten since the token was granted is not kept either. The lock stays held; if the holder has lost it,
    the waiters are notified.
    """

    name: str
    holder_id: str
    fencing_token: int
    value: Cached
    ttl_ms: int
    refresh_in_ms: int | None = None

    def call(self) -> Call:
        value = (self.value.kind, self.value.body)
        arguments = (self.holder_id, self.fencing_token, self.ttl_ms, FENCE_IDLE_MS, *value, self.refresh_in_ms)
        return script_call("write_cached", cache_keys(self.name).listed(), *arguments)

    def answer(self, reply: Reply) -> Written | Outpaced:
        return Written() if text(reply[0]) == "written" else Outpaced()


@light_dataclass(frozen=True, slots=True)
class ForgetCached(Operation[Forgotten]):
    """Drop the cached value, and refuse writes by the current and all earlier holders of the lock.

    With `only`, do nothing if another value is cached.
    """

    name: str
    only: Cached | None = None

    def call(self) -> Call:
        only = () if self.only is None else (self.only.kind, self.only.body)
        return script_call("forget_cached", cache_keys(self.name).listed(), *only)

    def answer(self, reply: Reply) -> Forgotten:
        return Forgotten(was_kept=text(reply[1]) == "1")


def _cached(kind: Reply, body: Reply) -> Cached:
    return Cached(cast("CachedKind", text(kind)), text(body))
