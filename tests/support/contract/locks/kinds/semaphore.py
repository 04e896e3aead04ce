"""The semaphore in the tests of all kinds."""

from typing import Final

from segmented.locks import AsyncSemaphore, Semaphore
from segmented.protocol.semaphore import AcquirePermit, ReleasePermit, RenewPermit
from tests.support.contract.locks.kinds import EVERY_LEASE, LONG_MS, Handles, Use

USES: Final = (
    Use(
        "semaphore",
        "permit",
        lambda name, me: AcquirePermit(name, me, LONG_MS, 1),
        lambda name, me: RenewPermit(name, me, LONG_MS),
        ReleasePermit,
    ),
)
HANDLES: Final = (
    Handles(
        "Semaphore (1 permit)",
        lambda store, name, **options: Semaphore(store, name, permits=1, **options),
        lambda store, name, **options: AsyncSemaphore(store, name, permits=1, **options),
        EVERY_LEASE | {"alone", "fencing"},
    ),
)
