# ruff: noqa: F403  # type checkers find each name where it is defined; programs find it in LATE
"""Values that cross a boundary: orders, and the named answers to every operation. All are frozen.

Answers are values: sold out is the usual outcome of a flash sale, not an exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.models.ids import *
    from segmented.models.locks import *
    from segmented.models.orders import *
    from segmented.models.pools import *
    from segmented.models.shards import *

LATE: Final = from_modules(
    {
        "segmented.models.ids": (
            "EPOCH_MAX ORDER_ID_BYTES_MAX QUANTITY_MAX SEGMENT_COUNT_MAX SHOWN_MAX SKU_BYTES_MAX STOCK_MAX UNITS_MAX "
            "checked_id check_own_id plain_text shortened"
        ),
        "segmented.models.locks": (
            "Acquired Cached CachedKind Forgotten Held HeldBy Lost MayLoad Outpaced Reestablished Released "
            "Renewed ServerIdentity Standing Uncached Unreplicated Written"
        ),
        "segmented.models.orders": (
            "Busy Closed Decided Granted LimitReached Order OrderRecord OrderState Part Refusal Reserved Returned "
            "Settled SoldOut Superseded Taken "
            "CART_ID_BYTES_MAX CART_SKUS_MAX Cart CartAnswer CartDecided CartFate CartLine CartRecord CartRefused "
            "CartReserved CartSettled CartState CartSweep LineRefusal PINNED_UNTIL_MS UnfinishedCart UnfinishedCarts "
            "cart_of"
        ),
        "segmented.models.pools": (
            "AlreadyOpen Assigned Assignment Differing EntryKind Frozen Inspected InspectedCart LedgerEntry Mended "
            "Opened Outrun PoolClosed PoolState Resized Restocked Sound Thawed TooFew Transfer Trimmed UNASSIGNED "
            "Verified"
        ),
        "segmented.models.shards": (
            "Received SHARD_COUNT_MAX Shard ShardDirectory ShardFound ShardedState checked_pool_name"
        ),
    }
)
"""Names imported on first use, and the modules that define them."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE)
