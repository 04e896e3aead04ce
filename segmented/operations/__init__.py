"""Operations: one atomic change asked of a store, as a frozen value. Each is safe to run twice.

The type parameter is the answer. A store executes an operation in one step (`RedisStore`: one script, one round trip).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.operations.base import Effect, Operation
    from segmented.operations.cache import ForgetCached, ReadCached, ReadOrAcquire, WriteCached
    from segmented.operations.carts import (
        DecideCart,
        FinishCart,
        InspectCarts,
        ListCarts,
        ListDueCarts,
        OpenCart,
        PinOrder,
        ReadCart,
        ScanCarts,
        ScanPinned,
    )
    from segmented.operations.dedup import (
        AbandonRun,
        BeginRun,
        CancelMessage,
        ClaimKey,
        DoubtRun,
        FinishRun,
        FinishRunWithEffect,
        FreeKey,
        ListClaims,
        ListNamespaces,
        ReadRecord,
        ReapKey,
        RenewRun,
        SettleRun,
    )
    from segmented.operations.fair import AcquireFair, FairTimes, ReleaseFair, RenewFair
    from segmented.operations.get_set import DeleteValue, GetSet, GetValue, SetNx
    from segmented.operations.locks import AcquireLock, AdoptLock, ReleaseLock, RenameHolder, RenewLock
    from segmented.operations.operator import ListLocks, RevokeLock, ShowLock
    from segmented.operations.outbox import (
        DropMessage,
        KeepMessage,
        ListDead,
        ListMessages,
        ListOutboxes,
        NoteOutbox,
        PutOff,
        QueueOrders,
        ReadOutbox,
        ReadSubmitted,
        RenewWork,
        ReplayDead,
        SweepOutbox,
        TakeOrders,
    )
    from segmented.operations.pool_audit import (
        InspectOrders,
        MendLedger,
        MendNumber,
        MendRecord,
        ReadCustomers,
        ReadLedgerStart,
        ScanChanges,
        ScanIds,
        TrimLedger,
    )
    from segmented.operations.pools import (
        BATCH_MAX,
        Cancel,
        ClosePool,
        Confirm,
        Expire,
        ExpireDue,
        Grant,
        ListDue,
        OpenPool,
        ReadLedger,
        ReadOrders,
        ReadPool,
        RenewGrant,
        Reserve,
        ReserveMany,
        Resize,
        Restock,
        ScanOrders,
        SettleMany,
        Withdraw,
    )
    from segmented.operations.quorum import AcquireVote, IdentifyServer, ReleaseVote, RenewVote
    from segmented.operations.read_write import AcquireRead, AcquireWrite, ReleaseReadWrite, RenewReadWrite
    from segmented.operations.reentrant import AcquireReentrant, ReleaseReentrant, RenewReentrant
    from segmented.operations.semaphore import AcquirePermit, ReleasePermit, RenewPermit
    from segmented.operations.sequencer import CheckSequencer, FencedSet
    from segmented.operations.shards import (
        AcknowledgeUnits,
        ListMasters,
        LookAtShard,
        ReadDirectory,
        ReceiveUnits,
        SendUnits,
        SlotRanges,
        WriteDirectory,
    )

__all__ = [
    "BATCH_MAX",
    "AbandonRun",
    "AcknowledgeUnits",
    "AcquireFair",
    "AcquireLock",
    "AcquirePermit",
    "AcquireRead",
    "AcquireReentrant",
    "AcquireVote",
    "AcquireWrite",
    "AdoptLock",
    "BeginRun",
    "Cancel",
    "CancelMessage",
    "CheckSequencer",
    "ClaimKey",
    "ClosePool",
    "Confirm",
    "DecideCart",
    "DeleteValue",
    "DoubtRun",
    "DropMessage",
    "Effect",
    "Expire",
    "ExpireDue",
    "FairTimes",
    "FencedSet",
    "FinishCart",
    "FinishRun",
    "FinishRunWithEffect",
    "ForgetCached",
    "FreeKey",
    "GetSet",
    "GetValue",
    "Grant",
    "IdentifyServer",
    "InspectCarts",
    "InspectOrders",
    "KeepMessage",
    "ListCarts",
    "ListClaims",
    "ListDead",
    "ListDue",
    "ListDueCarts",
    "ListLocks",
    "ListMasters",
    "ListMessages",
    "ListNamespaces",
    "ListOutboxes",
    "LookAtShard",
    "MendLedger",
    "MendNumber",
    "MendRecord",
    "NoteOutbox",
    "OpenCart",
    "OpenPool",
    "Operation",
    "PinOrder",
    "PutOff",
    "QueueOrders",
    "ReadCached",
    "ReadCart",
    "ReadCustomers",
    "ReadDirectory",
    "ReadLedger",
    "ReadLedgerStart",
    "ReadOrAcquire",
    "ReadOrders",
    "ReadOutbox",
    "ReadPool",
    "ReadRecord",
    "ReadSubmitted",
    "ReapKey",
    "ReceiveUnits",
    "ReleaseFair",
    "ReleaseLock",
    "ReleasePermit",
    "ReleaseReadWrite",
    "ReleaseReentrant",
    "ReleaseVote",
    "RenameHolder",
    "RenewFair",
    "RenewGrant",
    "RenewLock",
    "RenewPermit",
    "RenewReadWrite",
    "RenewReentrant",
    "RenewRun",
    "RenewVote",
    "RenewWork",
    "ReplayDead",
    "Reserve",
    "ReserveMany",
    "Resize",
    "Restock",
    "RevokeLock",
    "ScanCarts",
    "ScanChanges",
    "ScanIds",
    "ScanOrders",
    "ScanPinned",
    "SendUnits",
    "SetNx",
    "SettleMany",
    "SettleRun",
    "ShowLock",
    "SlotRanges",
    "SweepOutbox",
    "TakeOrders",
    "TrimLedger",
    "Withdraw",
    "WriteCached",
    "WriteDirectory",
]

LATE: Final = from_modules(
    {
        "segmented.operations.base": "Effect Operation",
        "segmented.operations.cache": "ForgetCached ReadCached ReadOrAcquire WriteCached",
        "segmented.operations.carts": (
            "DecideCart FinishCart InspectCarts ListCarts ListDueCarts OpenCart PinOrder ReadCart ScanCarts ScanPinned"
        ),
        "segmented.operations.dedup": (
            "AbandonRun BeginRun CancelMessage ClaimKey DoubtRun FinishRun FinishRunWithEffect FreeKey ListClaims "
            "ListNamespaces ReadRecord ReapKey RenewRun SettleRun"
        ),
        "segmented.operations.fair": "AcquireFair FairTimes ReleaseFair RenewFair",
        "segmented.operations.get_set": "DeleteValue GetSet GetValue SetNx",
        "segmented.operations.locks": "AcquireLock AdoptLock ReleaseLock RenameHolder RenewLock",
        "segmented.operations.operator": "ListLocks RevokeLock ShowLock",
        "segmented.operations.outbox": (
            "DropMessage KeepMessage ListDead ListMessages ListOutboxes NoteOutbox PutOff QueueOrders ReadOutbox "
            "ReadSubmitted RenewWork ReplayDead SweepOutbox TakeOrders"
        ),
        "segmented.operations.pool_audit": (
            "InspectOrders MendLedger MendNumber MendRecord ReadCustomers ReadLedgerStart ScanChanges ScanIds "
            "TrimLedger"
        ),
        "segmented.operations.pools": (
            "BATCH_MAX Cancel ClosePool Confirm Expire ExpireDue Grant ListDue OpenPool ReadLedger ReadOrders "
            "ReadPool RenewGrant Reserve ReserveMany Resize Restock ScanOrders SettleMany Withdraw"
        ),
        "segmented.operations.quorum": "AcquireVote IdentifyServer ReleaseVote RenewVote",
        "segmented.operations.read_write": "AcquireRead AcquireWrite ReleaseReadWrite RenewReadWrite",
        "segmented.operations.reentrant": "AcquireReentrant ReleaseReentrant RenewReentrant",
        "segmented.operations.semaphore": "AcquirePermit ReleasePermit RenewPermit",
        "segmented.operations.sequencer": "CheckSequencer FencedSet",
        "segmented.operations.shards": (
            "AcknowledgeUnits ListMasters LookAtShard ReadDirectory ReceiveUnits SendUnits SlotRanges WriteDirectory"
        ),
    }
)
"""Imported when asked for, and from where."""

if not TYPE_CHECKING:  # for a type checker every other name would exist, too
    __getattr__, __dir__ = late(__name__, LATE)
