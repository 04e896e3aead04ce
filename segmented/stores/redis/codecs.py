"""Every operation's codec, by its type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from segmented.stores.redis.audit_codec import AUDIT_CODECS
from segmented.stores.redis.cache_codec import CACHE_CODECS
from segmented.stores.redis.cart_codec import CART_CODECS
from segmented.stores.redis.dedup_codec import DEDUP_CODECS
from segmented.stores.redis.fair_codec import FAIR_CODECS
from segmented.stores.redis.get_set_codec import GET_SET_CODECS
from segmented.stores.redis.lock_codec import LOCK_CODECS
from segmented.stores.redis.operator_codec import OPERATOR_CODECS
from segmented.stores.redis.order_codec import ORDER_CODECS
from segmented.stores.redis.outbox_codec import OUTBOX_CODECS
from segmented.stores.redis.pool_codec import POOL_CODECS
from segmented.stores.redis.read_write_codec import READ_WRITE_CODECS
from segmented.stores.redis.reentrant_codec import REENTRANT_CODECS
from segmented.stores.redis.semaphore_codec import SEMAPHORE_CODECS
from segmented.stores.redis.sequencer_codec import SEQUENCER_CODECS
from segmented.stores.redis.shard_codec import SHARD_CODECS
from segmented.stores.redis.vote_codec import VOTE_CODECS

if TYPE_CHECKING:
    from segmented.operations import Operation
    from segmented.stores.redis.wire import Codec

CODECS: Final[dict[type[Operation[Any]], Codec]] = {
    **LOCK_CODECS,
    **REENTRANT_CODECS,
    **FAIR_CODECS,
    **READ_WRITE_CODECS,
    **SEMAPHORE_CODECS,
    **GET_SET_CODECS,
    **SEQUENCER_CODECS,
    **VOTE_CODECS,
    **CACHE_CODECS,
    **OPERATOR_CODECS,
    **POOL_CODECS,
    **ORDER_CODECS,
    **OUTBOX_CODECS,
    **CART_CODECS,
    **AUDIT_CODECS,
    **SHARD_CODECS,
    **DEDUP_CODECS,
}
