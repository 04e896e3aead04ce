"""What a script's refusal says of a pool, as our errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.errors import LayoutUnknown, PoolDrifted, PoolFrozen, PoolUnverified, PoolVanished
from segmented.models.archives import archived_of
from segmented.models.shards import Shard, no_keys_of
from segmented.protocol.wire import position

if TYPE_CHECKING:
    from redis.exceptions import ResponseError


def pool_error(operation: object, refused: ResponseError) -> Exception:
    """Return our error for a pool that lost changes or may have, was archived, or is another release's.

    Other refusals are returned unchanged.
    """
    named = (getattr(operation, name, "") for name in ("sku", "shard", "home"))
    sku: str = next(filter(None, named), "") or getattr(getattr(operation, "cart", None), "home", "")
    match str(refused).split(" "):
        case ["UNVERIFIED", *_]:
            return PoolUnverified(sku)
        case ["VANISHED", epoch, *_]:
            return no_keys_of(sku) if isinstance(sku, Shard) else PoolVanished(sku, int(epoch))
        case ["ARCHIVED", *said]:
            return archived_of(sku, " ".join(said))
        case ["PROFILE", *_]:
            return PoolDrifted(sku)
        case ["LAYOUT", found, known, *_]:
            return LayoutUnknown(sku, found=found, known=known)
        case ["FROZEN", found, seen, missing, gated, *_]:
            at, gone = (position(found), position(seen)), None if missing == "-" else missing
            return PoolFrozen(sku, *at, gone, is_gated=gated == "gated")
    return refused
