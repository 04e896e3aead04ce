# ruff: noqa: F403  # type checkers find each name where it is defined; programs find it in LATE
"""Operations: one atomic change asked of a store, as a frozen value. Each is safe to run twice.

The type parameter is the answer. A store executes an operation in one step (`RedisStore`: one script, one round trip).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late
from segmented.protocol.base import Effect as Effect, Operation as Operation

if TYPE_CHECKING:
    from segmented.protocol.archive import *
    from segmented.protocol.audit import *
    from segmented.protocol.beat import *
    from segmented.protocol.cache import *
    from segmented.protocol.carts import *
    from segmented.protocol.dedup import *
    from segmented.protocol.due import *
    from segmented.protocol.fair import *
    from segmented.protocol.freezing import *
    from segmented.protocol.get_set import *
    from segmented.protocol.lock import *
    from segmented.protocol.operator import *
    from segmented.protocol.outbox import *
    from segmented.protocol.pool import *
    from segmented.protocol.pool.orders import *
    from segmented.protocol.read_write import *
    from segmented.protocol.reentrant import *
    from segmented.protocol.reports import *
    from segmented.protocol.semaphore import *
    from segmented.protocol.sequencer import *
    from segmented.protocol.shards import *
    from segmented.protocol.vote import *

LATE: Final = from_modules(
    {
        "segmented.protocol.archive": (
            "AbandonArchive ArchiveDirectory BeginArchive CompleteExport EraseCustomer ForgetOrders NoteRelayed "
            "RemovePool RemoveRecords ScanLedger ScanRecords TrimLedger"
        ),
        "segmented.protocol.beat": "ChangeEntry LeadBeat MoveEntry ReadBeat",
        "segmented.protocol.cache": "ForgetCached ReadCached ReadOrAcquire WriteCached",
        "segmented.protocol.carts": (
            "DecideCart FinishCart InspectCarts ListCarts ListDueCarts OpenCart PinOrder ReadCart"
        ),
        "segmented.protocol.dedup": (
            "AbandonRun BeginRun CallNext CancelMessage ClaimKey DoubtRun FinishRun FinishRunWithEffect FreeKey "
            "ListClaims ListNamespaces ReadRecord RenewRun SettleRun"
        ),
        "segmented.protocol.due": (
            "DropPool DuePools ListDuePools ListPools MovePool NextDue NotePool ReadNextDue SOON_MS"
        ),
        "segmented.protocol.fair": "AcquireFair FairTimes ReleaseFair RenewFair",
        "segmented.protocol.freezing": "FreezePool RecountPool ThawPool VerifyPool",
        "segmented.protocol.get_set": "DeleteValue GetSet GetValue SetNx",
        "segmented.protocol.lock": "AcquireLock AdoptLock LeaveLine ReleaseLock RenameHolder RenewLock",
        "segmented.protocol.operator": "ListLocks ListMasters RevokeLock ShowLock SlotRanges",
        "segmented.protocol.outbox": (
            "DropMessage KeepMessage ListDead ListMessages ListOutboxes NoteTraces PutOff QueueOrders "
            "ReadOutbox ReadSubmitted RenewWork ReplayDead SweepOutbox TakeOrders"
        ),
        "segmented.protocol.audit": (
            "InspectOrders KeepAudit MendLedger MendNumber MendRecord ReadAudit ReadCustomers ReadLedgerStart ScanKey"
        ),
        "segmented.protocol.pool": (
            "AssignPool CheckAssignment CheckProfile ClosePool ListDue OpenPool ReadActivity ReadLedger ReadOrders "
            "ReadPool ReadSteps Resize Restock ScanOrders Withdraw"
        ),
        "segmented.protocol.pool.orders": (
            "BATCH_MAX Cancel ChangeQuantity Confirm Expire ExpireDue ExtendHold Grant LeavePoolLine ReleaseGrant "
            "RenewGrant Reserve ReserveMany ReturnUnits SettleMany"
        ),
        "segmented.protocol.vote": "AcquireVote IdentifyServer ReleaseVote RenewVote",
        "segmented.protocol.read_write": "AcquireRead AcquireWrite ReleaseReadWrite RenewReadWrite",
        "segmented.protocol.reentrant": "AcquireReentrant ReleaseReentrant RenewReentrant",
        "segmented.protocol.reports": "ProcessReport ReadReports ReportProcess",
        "segmented.protocol.semaphore": "AcquirePermit ReleasePermit RenewPermit",
        "segmented.protocol.sequencer": "CheckSequencer FencedSet",
        "segmented.protocol.shards": (
            "AcknowledgeUnits LookAtShard NoteEpoch ReadDirectory ReceiveUnits SendUnits WriteDirectory"
        ),
    }
)
"""Where each lazily imported name comes from."""

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __getattr__, __dir__, __all__ = late(__name__, LATE)
