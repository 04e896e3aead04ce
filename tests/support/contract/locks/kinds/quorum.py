"""The lock of a quorum in the tests of all kinds."""

from typing import Final

from segmented.locks import AsyncQuorumLock, QuorumLock
from segmented.protocol.vote import AcquireVote, ReleaseVote, RenewVote
from tests.support.contract.locks.kinds import EVERY_LEASE, HERD, LONG_MS, Handles, Use

USES: Final = (
    Use(
        "quorum",
        "exclusive",
        lambda name, me: AcquireVote(name, me, LONG_MS),
        lambda name, me: RenewVote(name, me, LONG_MS),
        ReleaseVote,
    ),
)
HANDLES: Final = (
    Handles(
        "QuorumLock (3 servers)",
        QuorumLock,
        AsyncQuorumLock,
        EVERY_LEASE | {"alone", "quorum"},
        servers=3,
        tells_rest=False,
        holes=HERD,
    ),
)
