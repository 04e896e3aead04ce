"""Every operation's codec, by its type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from segmented.stores.redis.lock_codec import LOCK_CODECS
from segmented.stores.redis.pool_codec import POOL_CODECS

if TYPE_CHECKING:
    from segmented.operations import Operation
    from segmented.stores.redis.wire import Codec

CODECS: Final[dict[type[Operation[Any]], Codec]] = {**LOCK_CODECS, **POOL_CODECS}
