"""Values that cross a boundary: orders, and the named answers to every operation. All are frozen.

Answers are values: sold out is the usual outcome of a flash sale, not an exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.models.assignments import UNASSIGNED as UNASSIGNED, Assignment as Assignment
    from segmented.models.carts import (
        CART_ID_BYTES_MAX as CART_ID_BYTES_MAX,
        CART_SKUS_MAX as CART_SKUS_MAX,
        PINNED_UNTIL_MS as PINNED_UNTIL_MS,
        Cart as Cart,
        CartAnswer as CartAnswer,
        CartDecided as CartDecided,
        CartFate as CartFate,
        CartLine as CartLine,
        CartRecord as CartRecord,
        CartRefused as CartRefused,
        CartReserved as CartReserved,
        CartSettled as CartSettled,
        CartState as CartState,
        CartSweep as CartSweep,
        LineRefusal as LineRefusal,
        UnfinishedCart as UnfinishedCart,
        UnfinishedCarts as UnfinishedCarts,
        cart_of as cart_of,
    )
    from segmented.models.ids import (
        EPOCH_MAX as EPOCH_MAX,
        ORDER_ID_BYTES_MAX as ORDER_ID_BYTES_MAX,
        QUANTITY_MAX as QUANTITY_MAX,
        SEGMENT_COUNT_MAX as SEGMENT_COUNT_MAX,
        SHOWN_MAX as SHOWN_MAX,
        SKU_BYTES_MAX as SKU_BYTES_MAX,
        STOCK_MAX as STOCK_MAX,
        UNITS_MAX as UNITS_MAX,
        check_own_id as check_own_id,
        checked_id as checked_id,
        plain_text as plain_text,
        shortened as shortened,
    )
    from segmented.models.locks import (
        Acquired as Acquired,
        Cached as Cached,
        CachedKind as CachedKind,
        Forgotten as Forgotten,
        Held as Held,
        HeldBy as HeldBy,
        Lost as Lost,
        MayLoad as MayLoad,
        Outpaced as Outpaced,
        Reestablished as Reestablished,
        Released as Released,
        Renewed as Renewed,
        ServerIdentity as ServerIdentity,
        Standing as Standing,
        Uncached as Uncached,
        Unreplicated as Unreplicated,
        Written as Written,
    )
    from segmented.models.orders import (
        Busy as Busy,
        Closed as Closed,
        Decided as Decided,
        Granted as Granted,
        LimitReached as LimitReached,
        Order as Order,
        OrderRecord as OrderRecord,
        OrderState as OrderState,
        Part as Part,
        Refusal as Refusal,
        Reserved as Reserved,
        Returned as Returned,
        Settled as Settled,
        SoldOut as SoldOut,
        Superseded as Superseded,
        Taken as Taken,
    )
    from segmented.models.pools import (
        AlreadyOpen as AlreadyOpen,
        Assigned as Assigned,
        Differing as Differing,
        EntryKind as EntryKind,
        Frozen as Frozen,
        Inspected as Inspected,
        InspectedCart as InspectedCart,
        LedgerEntry as LedgerEntry,
        Mended as Mended,
        Opened as Opened,
        Outrun as Outrun,
        PoolClosed as PoolClosed,
        PoolState as PoolState,
        Resized as Resized,
        Restocked as Restocked,
        Sound as Sound,
        Thawed as Thawed,
        TooFew as TooFew,
        Transfer as Transfer,
        Trimmed as Trimmed,
        Verified as Verified,
    )
    from segmented.models.shards import (
        SHARD_COUNT_MAX as SHARD_COUNT_MAX,
        Received as Received,
        Shard as Shard,
        ShardDirectory as ShardDirectory,
        ShardedState as ShardedState,
        ShardFound as ShardFound,
        checked_pool_name as checked_pool_name,
    )

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
            "Busy Closed Decided Granted LimitReached Order OrderRecord OrderState Part Refusal Reserved Returned "
            "Settled SoldOut Superseded Taken"
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

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE)
