"""Several plain locks at once, in the conformance suite."""

from typing import Any, Final

from segmented.locks import AsyncMultiLock, MultiLock
from segmented.locks.lock import LockClaim
from tests.support.contract.locks.kinds import EVERY_LEASE, LAPSE_MS, Handles


def claims(hold: Any) -> list[LockClaim]:  # noqa: ANN401  # of either colour
    """Return the claims of a lease on several names."""
    return [LockClaim(name, hold.holder_id, LAPSE_MS) for name in hold.names]


HANDLES: Final = (
    Handles(
        "MultiLock (2 names)",
        lambda store, name, **options: MultiLock(store, [name, f"{name}-second"], **options),
        lambda store, name, **options: AsyncMultiLock(store, [name, f"{name}-second"], **options),
        EVERY_LEASE | {"alone", "fencing"},
        lapsing=lambda hold: [claim.renewing(LAPSE_MS) for claim in claims(hold)],
        ending=lambda hold: [claim.releasing() for claim in claims(hold)[:1]],  # one of them is enough
        token=lambda hold: min(hold.fencing_tokens.values()),
        names=2,
    ),
)
