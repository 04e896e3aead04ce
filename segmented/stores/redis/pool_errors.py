"""Our errors for a script's refusal, and for a reply that cannot be read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from segmented.errors import (
    LayoutUnknown,
    PoolDrifted,
    PoolFrozen,
    PoolMissing,
    PoolUnverified,
    PoolVanished,
    SegmentedError,
    ShardVanished,
    StoreRefused,
)
from segmented.errors.base import FOREIGN
from segmented.models.pools import archived_of
from segmented.models.shards import Shard
from segmented.protocol.wire import position

if TYPE_CHECKING:
    from redis.exceptions import ResponseError


FIELD: Final = re.compile(r"UNREADABLE (\S+) (.*?)(?: script: .*)?", re.DOTALL)
FAILED: Final = re.compile(
    r"(?s).*user_script:[0-9]+: .*|(?:hash )?value is not .*|Invalid stream ID .*"
    r"|The ID specified in XADD .*|Command arguments must be .*"
)
"""Errors of a script, before its first write, for a value that no operation could have written."""


def _sku_of(operation: object) -> str:
    named = (getattr(operation, name, "") for name in ("sku", "shard", "home"))
    return next(filter(None, named), "") or getattr(getattr(operation, "cart", None), "home", "")


def unreadable(key: str, field: str = "a value") -> StoreRefused:
    """Return the error for a value that another program wrote."""
    message = (
        f"{field} of key {key!r} cannot be read: another program wrote it; write what is right by hand, or delete the "
        "key if nothing is held under it"
    )
    return StoreRefused(message)


def raise_misread(error: Exception, operation: object, key: str) -> None:
    """Raise our error for a reply with a value that no operation could have written, if `error` comes from that."""
    if isinstance(error, FOREIGN) and not isinstance(error, SegmentedError):
        sku = _sku_of(operation)
        raise (PoolDrifted(sku) if sku else unreadable(key)) from error


def _gone(sku: str, epoch: int | None) -> SegmentedError:
    """Return the error for a pool without keys, which was open in `epoch`, if it was seen."""
    if isinstance(sku, Shard):  # its directory lists it
        return ShardVanished(sku)
    return PoolMissing(sku) if epoch is None else PoolVanished(sku, epoch)


def pool_error(operation: object, refused: ResponseError, key: str) -> Exception:
    """Return our error for a pool that lost changes or may have, was archived, or is another release's.

    The same for values that cannot be read, of a pool or under `key`. Other refusals are returned unchanged.
    """
    sku, said = _sku_of(operation), str(refused)
    if field := FIELD.fullmatch(said):
        return unreadable(field[2], field[1])
    if said.startswith(("DRIFTED", "PROFILE")) or (sku and FAILED.fullmatch(said)):
        return PoolDrifted(sku)
    if FAILED.fullmatch(said):
        return unreadable(key)
    match said.split(" "):
        case ["MISSING", *_]:
            return _gone(sku, None)
        case ["VANISHED", epoch, *_]:
            return _gone(sku, int(epoch))
        case ["UNVERIFIED", *_]:
            return PoolUnverified(sku)
        case ["ARCHIVED", *about]:
            return archived_of(sku, " ".join(about))
        case ["LAYOUT", found, known, *_]:
            return LayoutUnknown(sku, found=found, known=known)
        case ["FROZEN", found, seen, missing, gated, *_]:
            at, gone = (position(found), position(seen)), None if missing == "-" else missing
            return PoolFrozen(sku, *at, gone, is_gated=gated == "gated")
    return refused
