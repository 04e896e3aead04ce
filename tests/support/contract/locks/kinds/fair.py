"""The fair lock in the tests of all kinds."""

from typing import Final

from segmented.locks.fair import TIMES, AsyncFairLock, FairLock
from segmented.protocol.fair import AcquireFair, ReleaseFair, RenewFair
from tests.support.contract.locks.kinds import EVERY_LEASE, LONG_MS, Handles, Use

USES: Final = (
    Use(
        "fair",
        "exclusive",
        lambda name, me: AcquireFair(name, me, "process", LONG_MS, TIMES),
        lambda name, me: RenewFair(name, me, LONG_MS),
        lambda name, me: ReleaseFair(name, me, TIMES),
    ),
)
HANDLES: Final = (Handles("FairLock", FairLock, AsyncFairLock, EVERY_LEASE | {"alone", "fencing", "fair"}),)
