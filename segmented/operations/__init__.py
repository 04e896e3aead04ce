"""Operations: one atomic change asked of a store, as a frozen value. Each is safe to run twice.

The type parameter is the answer. A store executes an operation in one step (`RedisStore`: one script, one round trip).
"""

from segmented.operations.base import Effect, Operation
from segmented.operations.cache import ForgetCached, ReadCached, ReadOrAcquire, WriteCached
from segmented.operations.fair import AcquireFair, FairTimes, ReleaseFair, RenewFair
from segmented.operations.get_set import DeleteValue, GetSet, GetValue, SetNx
from segmented.operations.locks import AcquireLock, ReleaseLock, RenewLock
from segmented.operations.operator import ListLocks, ListMasters, RevokeLock, ShowLock
from segmented.operations.pools import (
    Cancel,
    Confirm,
    Expire,
    Grant,
    ListDue,
    OpenPool,
    ReadLedger,
    ReadOrders,
    ReadPool,
    RenewGrant,
    Reserve,
    ScanOrders,
)
from segmented.operations.quorum import AcquireVote, IdentifyServer, ReleaseVote, RenewVote
from segmented.operations.read_write import AcquireRead, AcquireWrite, ReleaseReadWrite, RenewReadWrite
from segmented.operations.reentrant import AcquireReentrant, ReleaseReentrant, RenewReentrant
from segmented.operations.semaphore import AcquirePermit, ReleasePermit, RenewPermit
from segmented.operations.sequencer import CheckSequencer, FencedSet

__all__ = [
    "AcquireFair",
    "AcquireLock",
    "AcquirePermit",
    "AcquireRead",
    "AcquireReentrant",
    "AcquireVote",
    "AcquireWrite",
    "Cancel",
    "CheckSequencer",
    "Confirm",
    "DeleteValue",
    "Effect",
    "Expire",
    "FairTimes",
    "FencedSet",
    "ForgetCached",
    "GetSet",
    "GetValue",
    "Grant",
    "IdentifyServer",
    "ListDue",
    "ListLocks",
    "ListMasters",
    "OpenPool",
    "Operation",
    "ReadCached",
    "ReadLedger",
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
    "RevokeLock",
    "ScanOrders",
    "SetNx",
    "ShowLock",
    "WriteCached",
]
