"""The plain lock in the tests of all kinds."""

from typing import Final

from segmented.locks import AsyncLock, Lock
from segmented.protocol import AcquireLock, ReleaseLock, RenewLock
from tests.support.contract.locks.kinds import EVERY_LEASE, LONG_MS, Handles, Use

USES: Final = (
    Use(
        "lock",
        "exclusive",
        lambda name, me: AcquireLock(name, me, LONG_MS),
        lambda name, me: RenewLock(name, me, LONG_MS),
        ReleaseLock,
    ),
)
HANDLES: Final = (
    Handles(
        "Lock",
        Lock,
        AsyncLock,
        EVERY_LEASE | {"alone", "fencing", "replicas", "decorator", "transaction", "single flight"},
        stores=("redis", "memory"),
    ),
)
