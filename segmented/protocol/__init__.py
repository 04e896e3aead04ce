# ruff: noqa: F403  # type checkers find each name where it is defined; programs find it in LATE
"""Operations: one atomic change asked of a store, as a frozen value. Each is safe to run twice.

The type parameter is the answer. A store executes an operation in one step (`RedisStore`: one script, one round trip).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late
from segmented.protocol.base import Effect as Effect, Operation as Operation

if TYPE_CHECKING:
    from segmented.protocol.archive.operations import *
    from segmented.protocol.audit.operations import *
    from segmented.protocol.cache.operations import *
    from segmented.protocol.carts.operations import *
    from segmented.protocol.dedup.operations import *
    from segmented.protocol.fair.operations import *
    from segmented.protocol.freezing.operations import *
    from segmented.protocol.get_set.operations import *
    from segmented.protocol.lock.operations import *
    from segmented.protocol.operator.operations import *
    from segmented.protocol.outbox.operations import *
    from segmented.protocol.pool.operations import *
    from segmented.protocol.pool.orders import *
    from segmented.protocol.pool.standing import *
    from segmented.protocol.read_write.operations import *
    from segmented.protocol.reentrant.operations import *
    from segmented.protocol.semaphore.operations import *
    from segmented.protocol.sequencer.operations import *
    from segmented.protocol.shards.operations import *
    from segmented.protocol.vote.operations import *

LATE: Final = from_modules(
    {
        "segmented.protocol.archive.operations": (
            "AbandonArchive ArchiveDirectory BeginArchive CompleteExport DropOutbox ForgetOrders NoteRelayed "
            "RemovePool RemoveRecords ScanLedger ScanRecords TrimLedger"
        ),
        "segmented.protocol.cache.operations": "ForgetCached ReadCached ReadOrAcquire WriteCached",
        "segmented.protocol.carts.operations": (
            "DecideCart FinishCart InspectCarts ListCarts ListDueCarts OpenCart PinOrder ReadCart ScanCarts ScanPinned"
        ),
        "segmented.protocol.dedup.operations": (
            "AbandonRun BeginRun CallNext CancelMessage ClaimKey DoubtRun FinishRun FinishRunWithEffect FreeKey "
            "ListClaims ListNamespaces ReadRecord ReapKey RenewRun SettleRun"
        ),
        "segmented.protocol.fair.operations": "AcquireFair FairTimes ReleaseFair RenewFair",
        "segmented.protocol.freezing.operations": "FreezePool RecountPool ScanHolds ThawPool VerifyPool",
        "segmented.protocol.get_set.operations": "DeleteValue GetSet GetValue SetNx",
        "segmented.protocol.lock.operations": "AcquireLock AdoptLock LeaveLine ReleaseLock RenameHolder RenewLock",
        "segmented.protocol.operator.operations": "ListLocks ListMasters RevokeLock ShowLock SlotRanges",
        "segmented.protocol.outbox.operations": (
            "DropMessage KeepMessage ListDead ListMessages ListOutboxes NoteOutbox PutOff QueueOrders ReadOutbox "
            "ReadSubmitted RenewWork ReplayDead SweepOutbox TakeOrders"
        ),
        "segmented.protocol.audit.operations": (
            "InspectOrders KeepAudit MendLedger MendNumber MendRecord ReadAudit ReadCustomers ReadLedgerStart "
            "ScanChanges ScanIds"
        ),
        "segmented.protocol.pool.operations": (
            "AssignPool CheckAssignment CheckProfile ClosePool ListDue OpenPool ReadActivity ReadLedger ReadOrders "
            "ReadPool ReadSteps Resize Restock ScanOrders Withdraw"
        ),
        "segmented.protocol.pool.orders": (
            "BATCH_MAX Cancel Confirm Expire ExpireDue Grant LeavePoolLine ReleaseGrant RenewGrant Reserve ReserveMany "
            "SettleMany"
        ),
        "segmented.protocol.pool.standing": "ChangeQuantity ExtendHold ReturnUnits",
        "segmented.protocol.vote.operations": "AcquireVote IdentifyServer ReleaseVote RenewVote",
        "segmented.protocol.read_write.operations": "AcquireRead AcquireWrite ReleaseReadWrite RenewReadWrite",
        "segmented.protocol.reentrant.operations": "AcquireReentrant ReleaseReentrant RenewReentrant",
        "segmented.protocol.semaphore.operations": "AcquirePermit ReleasePermit RenewPermit",
        "segmented.protocol.sequencer.operations": "CheckSequencer FencedSet",
        "segmented.protocol.shards.operations": (
            "AcknowledgeUnits LookAtShard NoteEpoch ReadDirectory ReceiveUnits SendUnits WriteDirectory"
        ),
    }
)
"""Where each lazily imported name comes from."""

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __getattr__, __dir__, __all__ = late(__name__, LATE)
