"""Values that cross a boundary: orders, and the named answers to every operation. All are frozen.

Answers are values: sold out is the usual outcome of a flash sale, not an exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.models.assignments import UNASSIGNED, Assignment
    from segmented.models.carts import (
        CART_ID_BYTES_MAX,
        CART_SKUS_MAX,
        PINNED_UNTIL_MS,
        Cart,
        CartAnswer,
        CartDecided,
        CartFate,
        CartLine,
        CartRecord,
        CartRefused,
        CartReserved,
        CartSettled,
        CartState,
        CartSweep,
        LineRefusal,
        UnfinishedCart,
        UnfinishedCarts,
        cart_of,
    )
    from segmented.models.ids import (
        EPOCH_MAX,
        ORDER_ID_BYTES_MAX,
        QUANTITY_MAX,
        SEGMENT_COUNT_MAX,
        SHOWN_MAX,
        SKU_BYTES_MAX,
        STOCK_MAX,
        UNITS_MAX,
        check_own_id,
        checked_id,
        plain_text,
        shortened,
    )
    from segmented.models.locks import (
        Acquired,
        Cached,
        CachedKind,
        Forgotten,
        Held,
        HeldBy,
        Lost,
        MayLoad,
        Outpaced,
        Reestablished,
        Released,
        Renewed,
        ServerIdentity,
        Standing,
        Uncached,
        Unreplicated,
        Written,
    )
    from segmented.models.orders import (
        Busy,
        Closed,
        Decided,
        Granted,
        LimitReached,
        Order,
        OrderRecord,
        OrderState,
        Part,
        Refusal,
        Reserved,
        Settled,
        SoldOut,
        Superseded,
        Taken,
    )
    from segmented.models.pools import (
        AlreadyOpen,
        Assigned,
        Differing,
        EntryKind,
        Frozen,
        Inspected,
        InspectedCart,
        LedgerEntry,
        Mended,
        Opened,
        Outrun,
        PoolClosed,
        PoolState,
        Resized,
        Restocked,
        Sound,
        Thawed,
        TooFew,
        Transfer,
        Trimmed,
        Verified,
    )
    from segmented.models.shards import (
        SHARD_COUNT_MAX,
        Received,
        Shard,
        ShardDirectory,
        ShardedState,
        ShardFound,
        checked_pool_name,
    )

__all__ = [
    "CART_ID_BYTES_MAX",
    "CART_SKUS_MAX",
    "EPOCH_MAX",
    "ORDER_ID_BYTES_MAX",
    "PINNED_UNTIL_MS",
    "QUANTITY_MAX",
    "SEGMENT_COUNT_MAX",
    "SHARD_COUNT_MAX",
    "SHOWN_MAX",
    "SKU_BYTES_MAX",
    "STOCK_MAX",
    "UNASSIGNED",
    "UNITS_MAX",
    "Acquired",
    "AlreadyOpen",
    "Assigned",
    "Assignment",
    "Busy",
    "Cached",
    "CachedKind",
    "Cart",
    "CartAnswer",
    "CartDecided",
    "CartFate",
    "CartLine",
    "CartRecord",
    "CartRefused",
    "CartReserved",
    "CartSettled",
    "CartState",
    "CartSweep",
    "Closed",
    "Decided",
    "Differing",
    "EntryKind",
    "Forgotten",
    "Frozen",
    "Granted",
    "Held",
    "HeldBy",
    "Inspected",
    "InspectedCart",
    "LedgerEntry",
    "LimitReached",
    "LineRefusal",
    "Lost",
    "MayLoad",
    "Mended",
    "Opened",
    "Order",
    "OrderRecord",
    "OrderState",
    "Outpaced",
    "Outrun",
    "Part",
    "PoolClosed",
    "PoolState",
    "Received",
    "Reestablished",
    "Refusal",
    "Released",
    "Renewed",
    "Reserved",
    "Resized",
    "Restocked",
    "ServerIdentity",
    "Settled",
    "Shard",
    "ShardDirectory",
    "ShardFound",
    "ShardedState",
    "SoldOut",
    "Sound",
    "Standing",
    "Superseded",
    "Taken",
    "Thawed",
    "TooFew",
    "Transfer",
    "Trimmed",
    "Uncached",
    "UnfinishedCart",
    "UnfinishedCarts",
    "Unreplicated",
    "Verified",
    "Written",
    "cart_of",
    "check_own_id",
    "checked_id",
    "checked_pool_name",
    "plain_text",
    "shortened",
]

LATE: Final = from_modules(
    {
        "segmented.models.assignments": "Assignment UNASSIGNED",
        "segmented.models.carts": (
            "CART_ID_BYTES_MAX CART_SKUS_MAX Cart CartAnswer CartDecided CartFate CartLine CartRecord CartRefused "
            "CartReserved CartSettled CartState CartSweep LineRefusal PINNED_UNTIL_MS UnfinishedCart UnfinishedCarts "
            "cart_of"
        ),
        "segmented.models.ids": (
            "EPOCH_MAX ORDER_ID_BYTES_MAX QUANTITY_MAX SEGMENT_COUNT_MAX SHOWN_MAX SKU_BYTES_MAX STOCK_MAX UNITS_MAX "
            "checked_id check_own_id plain_text shortened"
        ),
        "segmented.models.locks": (
            "Acquired Cached CachedKind Forgotten Held HeldBy Lost MayLoad Outpaced Reestablished Released "
            "Renewed ServerIdentity Standing Uncached Unreplicated Written"
        ),
        "segmented.models.orders": (
            "Busy Closed Decided Granted LimitReached Order OrderRecord OrderState Part Refusal Reserved Settled "
            "SoldOut Superseded Taken"
        ),
        "segmented.models.pools": (
            "AlreadyOpen Assigned Differing EntryKind Frozen Inspected InspectedCart LedgerEntry Mended Opened Outrun "
            "PoolClosed PoolState Resized Restocked Sound Thawed TooFew Transfer Trimmed Verified"
        ),
        "segmented.models.shards": (
            "Received SHARD_COUNT_MAX Shard ShardDirectory ShardFound ShardedState checked_pool_name"
        ),
    }
)
"""Names imported on first use, and the modules that define them."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any other name
    __getattr__, __dir__ = late(__name__, LATE)
