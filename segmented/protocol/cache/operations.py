"""Operations on cached values, each kept beside the lock of its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from segmented.keys import cache_keys
from segmented.models import Acquired, Cached, CachedKind, Forgotten, Held, MayLoad, Outpaced, Uncached, Written
from segmented.protocol.base import Operation
from segmented.protocol.wire import Call, Codec, optional_number, plain_call, script_call, text

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply, Sight

FENCE_IDLE_MS: Final = 3600 * 1000
"""How long the fence of an idle value is kept. A value that takes longer to load is not kept: it may be outdated."""


@dataclass(frozen=True, slots=True)
class ReadCached(Operation[Cached | Uncached]):
    """Read the value cached under a name."""

    name: str


@dataclass(frozen=True, slots=True)
class ReadOrAcquire(Operation[Cached | Held | MayLoad]):
    """Read the cached value; if it is missing or due for a refresh, take the lock for `ttl_ms`.

    While another caller holds the lock, an old value is returned and a missing one waited for. Only one caller per
    `hold_off_ms` gets to refresh a due value. A repeat by the same holder id gets the same answer, or releases the lock
    if a value has been written since.
    """

    name: str
    holder_id: str
    ttl_ms: int
    hold_off_ms: int


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class ForgetCached(Operation[Forgotten]):
    """Drop the cached value, and refuse writes by the current and all earlier holders of the lock.

    With `only`, do nothing if another value is cached.
    """

    name: str
    only: Cached | None = None


# --- over the wire ---


def _encode_read(operation: ReadCached) -> Call:
    return plain_call("HMGET", cache_keys(operation.name).cached, "kind", "body")


def _decode_read(_: ReadCached, reply: Reply) -> Cached | Uncached:
    return Uncached() if reply[0] is None else _cached(*reply)


def _encode_read_or_acquire(operation: ReadOrAcquire) -> Call:
    keys = cache_keys(operation.name).listed()
    lease = (operation.ttl_ms, FENCE_IDLE_MS + operation.ttl_ms)
    return script_call("read_or_acquire", keys, operation.holder_id, *lease, operation.hold_off_ms)


def _decode_read_or_acquire(operation: ReadOrAcquire, reply: Reply) -> Cached | Held | MayLoad:
    match text(reply[0]):
        case "cached":
            return _cached(*reply[1:])
        case "held":
            return Held(optional_number(reply[1]))
    acquired = Acquired(int(reply[1]), operation.ttl_ms, replay=text(reply[2]) == "1")
    return MayLoad(acquired, _cached(*reply[3:]) if text(reply[3]) else None)


def _encode_write(operation: WriteCached) -> Call:
    value = (operation.value.kind, operation.value.body)
    refresh_in_ms = "" if operation.refresh_in_ms is None else operation.refresh_in_ms
    arguments = (operation.holder_id, operation.fencing_token, operation.ttl_ms, FENCE_IDLE_MS, *value, refresh_in_ms)
    return script_call("write_cached", cache_keys(operation.name).listed(), *arguments)


def _decode_write(_: WriteCached, reply: Reply) -> Written | Outpaced:
    return Written() if text(reply[0]) == "written" else Outpaced()


def _encode_forget(operation: ForgetCached) -> Call:
    only = () if operation.only is None else (operation.only.kind, operation.only.body)
    return script_call("forget_cached", cache_keys(operation.name).listed(), *only)


def _decode_forget(_: ForgetCached, reply: Reply) -> Forgotten:
    return Forgotten(was_kept=text(reply[1]) == "1")


def _cached(kind: Reply, body: Reply) -> Cached:
    return Cached(cast("CachedKind", text(kind)), text(body))


def _sight_of_load(_: Reply, answer: Cached | Held | MayLoad) -> Sight | None:
    return (0, 0, answer.acquired.fencing_token) if isinstance(answer, MayLoad) else None


CODECS: Final = {
    ReadCached: Codec(_encode_read, _decode_read),
    ReadOrAcquire: Codec(_encode_read_or_acquire, _decode_read_or_acquire, sight=_sight_of_load),
    WriteCached: Codec(_encode_write, _decode_write),
    ForgetCached: Codec(_encode_forget, _decode_forget),
}
