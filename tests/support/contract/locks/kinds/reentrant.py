"""The reentrant lock in the tests of all kinds."""

from typing import Final

from segmented.locks import AsyncReentrantLock, ReentrantLock, task_owner, thread_owner
from segmented.protocol.reentrant import AcquireReentrant, ReleaseReentrant, RenewReentrant
from tests.support.contract.locks.kinds import EVERY_LEASE, LONG_MS, Handles, Use

BY_THREAD: Final = {"owner": thread_owner, "renew": False}
BY_TASK: Final = {"owner": task_owner, "renew": False}

USES: Final = (
    Use(
        "reentrant",
        "exclusive",
        lambda name, me: AcquireReentrant(name, f"owner {me}", me, LONG_MS),
        lambda name, me: RenewReentrant(name, f"owner {me}", me, LONG_MS),
        lambda name, me: ReleaseReentrant(name, f"owner {me}", me),
        names_owner=True,
    ),
)
HANDLES: Final = (
    Handles(
        "ReentrantLock",
        lambda store, name, **options: ReentrantLock(store, name, **{**BY_THREAD, **options}),
        lambda store, name, **options: AsyncReentrantLock(store, name, **{**BY_TASK, **options}),
        EVERY_LEASE | {"alone", "fencing", "reentrant"},
    ),
)
