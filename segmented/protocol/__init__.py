"""Operations: one atomic change asked of a store, as a frozen value. Each is safe to run twice.

The type parameter is the answer. A store executes an operation in one step (`RedisStore`: one script, one round trip).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late
from segmented.protocol.base import Effect, Operation

if TYPE_CHECKING:
    from segmented.protocol.archive.operations import (
        AbandonArchive,
        ArchiveDirectory,
        BeginArchive,
        CompleteExport,
        DropOutbox,
        RemovePool,
        RemoveRecords,
        ScanLedger,
        ScanRecords,
    )
    from segmented.protocol.assigning.operations import AssignPool, CheckAssignment
    from segmented.protocol.audit.operations import (
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
    from segmented.protocol.cache.operations import ForgetCached, ReadCached, ReadOrAcquire, WriteCached
    from segmented.protocol.carts.operations import (
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
    from segmented.protocol.dedup.operations import (
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
    from segmented.protocol.fair.operations import AcquireFair, FairTimes, ReleaseFair, RenewFair
    from segmented.protocol.forgetting.operations import ForgetOrders
    from segmented.protocol.freezing.operations import FreezePool, RecountPool, ScanHolds, ThawPool, VerifyPool
    from segmented.protocol.get_set.operations import DeleteValue, GetSet, GetValue, SetNx
    from segmented.protocol.lock.operations import (
        AcquireLock,
        AdoptLock,
        LeaveLine,
        ReleaseLock,
        RenameHolder,
        RenewLock,
    )
    from segmented.protocol.operator.operations import ListLocks, RevokeLock, ShowLock
    from segmented.protocol.outbox.operations import (
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
    from segmented.protocol.pool.operations import (
        BATCH_MAX,
        Cancel,
        CheckProfile,
        ClosePool,
        Confirm,
        Expire,
        ExpireDue,
        Grant,
        LeavePoolLine,
        ListDue,
        OpenPool,
        ReadLedger,
        ReadOrders,
        ReadPool,
        ReadSteps,
        ReleaseGrant,
        RenewGrant,
        Reserve,
        ReserveMany,
        Resize,
        Restock,
        ScanOrders,
        SettleMany,
        Withdraw,
    )
    from segmented.protocol.read_write.operations import AcquireRead, AcquireWrite, ReleaseReadWrite, RenewReadWrite
    from segmented.protocol.reentrant.operations import AcquireReentrant, ReleaseReentrant, RenewReentrant
    from segmented.protocol.relay.operations import NoteRelayed
    from segmented.protocol.semaphore.operations import AcquirePermit, ReleasePermit, RenewPermit
    from segmented.protocol.sequencer.operations import CheckSequencer, FencedSet
    from segmented.protocol.shards.operations import (
        AcknowledgeUnits,
        ListMasters,
        LookAtShard,
        NoteEpoch,
        ReadDirectory,
        ReceiveUnits,
        SendUnits,
        SlotRanges,
        WriteDirectory,
    )
    from segmented.protocol.vote.operations import AcquireVote, IdentifyServer, ReleaseVote, RenewVote

__all__ = [
    "BATCH_MAX",
    "AbandonArchive",
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
    "ArchiveDirectory",
    "AssignPool",
    "BeginArchive",
    "BeginRun",
    "Cancel",
    "CancelMessage",
    "CheckAssignment",
    "CheckProfile",
    "CheckSequencer",
    "ClaimKey",
    "ClosePool",
    "CompleteExport",
    "Confirm",
    "DecideCart",
    "DeleteValue",
    "DoubtRun",
    "DropMessage",
    "DropOutbox",
    "Effect",
    "Expire",
    "ExpireDue",
    "FairTimes",
    "FencedSet",
    "FinishCart",
    "FinishRun",
    "FinishRunWithEffect",
    "ForgetCached",
    "ForgetOrders",
    "FreeKey",
    "FreezePool",
    "GetSet",
    "GetValue",
    "Grant",
    "IdentifyServer",
    "InspectCarts",
    "InspectOrders",
    "KeepMessage",
    "LeaveLine",
    "LeavePoolLine",
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
    "NoteEpoch",
    "NoteOutbox",
    "NoteRelayed",
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
    "ReadSteps",
    "ReadSubmitted",
    "ReapKey",
    "ReceiveUnits",
    "RecountPool",
    "ReleaseFair",
    "ReleaseGrant",
    "ReleaseLock",
    "ReleasePermit",
    "ReleaseReadWrite",
    "ReleaseReentrant",
    "ReleaseVote",
    "RemovePool",
    "RemoveRecords",
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
    "ScanHolds",
    "ScanIds",
    "ScanLedger",
    "ScanOrders",
    "ScanPinned",
    "ScanRecords",
    "SendUnits",
    "SetNx",
    "SettleMany",
    "SettleRun",
    "ShowLock",
    "SlotRanges",
    "SweepOutbox",
    "TakeOrders",
    "ThawPool",
    "TrimLedger",
    "VerifyPool",
    "Withdraw",
    "WriteCached",
    "WriteDirectory",
]

LATE: Final = from_modules(
    {
        "segmented.protocol.archive.operations": (
            "AbandonArchive ArchiveDirectory BeginArchive CompleteExport DropOutbox RemovePool RemoveRecords "
            "ScanLedger ScanRecords"
        ),
        "segmented.protocol.cache.operations": "ForgetCached ReadCached ReadOrAcquire WriteCached",
        "segmented.protocol.carts.operations": (
            "DecideCart FinishCart InspectCarts ListCarts ListDueCarts OpenCart PinOrder ReadCart ScanCarts ScanPinned"
        ),
        "segmented.protocol.dedup.operations": (
            "AbandonRun BeginRun CancelMessage ClaimKey DoubtRun FinishRun FinishRunWithEffect FreeKey ListClaims "
            "ListNamespaces ReadRecord ReapKey RenewRun SettleRun"
        ),
        "segmented.protocol.fair.operations": "AcquireFair FairTimes ReleaseFair RenewFair",
        "segmented.protocol.freezing.operations": "FreezePool RecountPool ScanHolds ThawPool VerifyPool",
        "segmented.protocol.get_set.operations": "DeleteValue GetSet GetValue SetNx",
        "segmented.protocol.lock.operations": "AcquireLock AdoptLock LeaveLine ReleaseLock RenameHolder RenewLock",
        "segmented.protocol.operator.operations": "ListLocks RevokeLock ShowLock",
        "segmented.protocol.outbox.operations": (
            "DropMessage KeepMessage ListDead ListMessages ListOutboxes NoteOutbox PutOff QueueOrders ReadOutbox "
            "ReadSubmitted RenewWork ReplayDead SweepOutbox TakeOrders"
        ),
        "segmented.protocol.audit.operations": (
            "InspectOrders MendLedger MendNumber MendRecord ReadCustomers ReadLedgerStart ScanChanges ScanIds "
            "TrimLedger"
        ),
        "segmented.protocol.pool.operations": (
            "BATCH_MAX Cancel CheckProfile ClosePool Confirm Expire ExpireDue Grant LeavePoolLine ListDue OpenPool "
            "ReadLedger ReadOrders ReadPool ReadSteps ReleaseGrant RenewGrant Reserve ReserveMany Resize Restock "
            "ScanOrders SettleMany Withdraw"
        ),
        "segmented.protocol.forgetting.operations": "ForgetOrders",
        "segmented.protocol.vote.operations": "AcquireVote IdentifyServer ReleaseVote RenewVote",
        "segmented.protocol.read_write.operations": "AcquireRead AcquireWrite ReleaseReadWrite RenewReadWrite",
        "segmented.protocol.reentrant.operations": "AcquireReentrant ReleaseReentrant RenewReentrant",
        "segmented.protocol.assigning.operations": "AssignPool CheckAssignment",
        "segmented.protocol.relay.operations": "NoteRelayed",
        "segmented.protocol.semaphore.operations": "AcquirePermit ReleasePermit RenewPermit",
        "segmented.protocol.sequencer.operations": "CheckSequencer FencedSet",
        "segmented.protocol.shards.operations": (
            "AcknowledgeUnits ListMasters LookAtShard NoteEpoch ReadDirectory ReceiveUnits SendUnits SlotRanges "
            "WriteDirectory"
        ),
    }
)
"""Where each lazily imported name comes from."""

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __getattr__, __dir__, _ = late(__name__, LATE)
