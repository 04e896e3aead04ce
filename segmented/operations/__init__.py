"""Operations: one atomic change asked of a store, as a frozen value. Each is safe to run twice.

The type parameter is the answer. A store executes an operation in one step (`RedisStore`: one script, one round trip).
"""

from segmented.operations.base import Effect, Operation
from segmented.operations.cache import ForgetCached, ReadCached, ReadOrAcquire, WriteCached
from segmented.operations.carts import DecideCart, FinishCart, ListDueCarts, OpenCart, PinOrder, ReadCart
from segmented.operations.fair import AcquireFair, FairTimes, ReleaseFair, RenewFair
from segmented.operations.get_set import DeleteValue, GetSet, GetValue, SetNx
from segmented.operations.locks import AcquireLock, ReleaseLock, RenewLock
from segmented.operations.operator import ListLocks, ListMasters, RevokeLock, ShowLock
from segmented.operations.pool_audit import (
    InspectOrders,
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

__all__ = [
    "BATCH_MAX",
    "AcquireFair",
    "AcquireLock",
    "AcquirePermit",
    "AcquireRead",
    "AcquireReentrant",
    "AcquireVote",
    "AcquireWrite",
    "Cancel",
    "CheckSequencer",
    "ClosePool",
    "Confirm",
    "DecideCart",
    "DeleteValue",
    "Effect",
    "Expire",
    "ExpireDue",
    "FairTimes",
    "FencedSet",
    "FinishCart",
    "ForgetCached",
    "GetSet",
    "GetValue",
    "Grant",
    "IdentifyServer",
    "InspectOrders",
    "ListDue",
    "ListDueCarts",
    "ListLocks",
    "ListMasters",
    "MendNumber",
    "MendRecord",
    "OpenCart",
    "OpenPool",
    "Operation",
    "PinOrder",
    "ReadCached",
    "ReadCart",
    "ReadCustomers",
    "ReadLedger",
    "ReadLedgerStart",
    "ReadOrAcquire",
    "ReadOrders",
    "ReadPool",
    "ReleaseFair",
    "ReleaseLock",
    "ReleasePermit",
    "ReleaseReadWrite",
    "ReleaseReentrant",
    "ReleaseVote",
    "RenewFair",
    "RenewGrant",
    "RenewLock",
    "RenewPermit",
    "RenewReadWrite",
    "RenewReentrant",
    "RenewVote",
    "Reserve",
    "ReserveMany",
    "Resize",
    "Restock",
    "RevokeLock",
    "ScanChanges",
    "ScanIds",
    "ScanOrders",
    "SetNx",
    "SettleMany",
    "ShowLock",
    "TrimLedger",
    "Withdraw",
    "WriteCached",
]
