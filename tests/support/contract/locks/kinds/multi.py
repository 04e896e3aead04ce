"""Several plain locks at once, in the conformance suite."""

from __future__ import annotations

from typing import Final

from segmented.locks import AsyncMultiLock, MultiLock
from tests.support.contract.locks.kinds import EVERY_LEASE, LAPSE_MS, Handles

HANDLES: Final = (
    Handles(
        "MultiLock (2 names)",
        lambda store, name, **options: MultiLock(store, [name, f"{name}-second"], **options),
        lambda store, name, **options: AsyncMultiLock(store, [name, f"{name}-second"], **options),
        EVERY_LEASE | {"alone", "fencing"},
        lapsing=lambda hold: [part.claim.renewing(LAPSE_MS) for part in hold._parts],  # noqa: SLF001  # no other way in
        ending=lambda hold: [part.claim.releasing() for part in hold._parts[:1]],  # noqa: SLF001  # one of them is enough
        token=lambda hold: min(hold.fencing_tokens.values()),
        names=2,
    ),
)
