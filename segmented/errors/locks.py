"""Errors of locks, leases, and values computed under a lock."""

from __future__ import annotations

from collections.abc import Mapping

from segmented.errors.base import InvalidInput, SegmentedError


class LeaseError(SegmentedError):
    """The lease is not usable.

    Cure: Catch it for every error of a lock or lease.
    """


class LeaseLost(LeaseError):
    """The lease has expired or was taken away, so the work that it protected must stop.

    Cure: Stop the work; choose a longer `ttl` or `renew=True`, and check fencing tokens where you write.
    """

    def __init__(self, name: str, holder_id: str, *, is_released: bool = False) -> None:
        why = "was released, so it protects nothing any more" if is_released else "is lost: it lapsed or was taken away"
        super().__init__(f"lease on {name!r} {why}")
        self.name, self.holder_id = name, holder_id


class AcquireTimeout(LeaseError, TimeoutError):
    """The lock was not free before the deadline.

    Cure: Try again later, wait longer, or use `try_acquire` for an answer instead of an error.
    """

    def __init__(self, name: str, timeout: float, *, is_delayed: bool = False, is_held_here: bool = False) -> None:
        """Create the error with the lock and the seconds waited.

        `is_delayed` if only a lock-delay kept it closed; `is_held_here` if it may have waited for a lease of its own.
        """
        why = ": its last lease was lost, and the lock-delay still runs" if is_delayed else ""
        if is_held_here:
            why = ": this process has a lease on it; a caller that has one must release it before it waits for another"
        super().__init__(f"lock {name!r} was not free within {timeout:g} s{why}")
        self.name = name
        self.timeout = timeout
        self.is_delayed = is_delayed
        self.is_held_here = is_held_here


class ReplicasMissing(LeaseError):
    """Too few replicas acknowledged the lock, so it was released again.

    Cure: Bring the replicas back, or ask for fewer.
    """

    def __init__(self, name: str, wanted: int, acknowledged: int) -> None:
        super().__init__(f"lock {name!r} was acknowledged by {acknowledged} replicas of the {wanted} wanted")
        self.name, self.wanted, self.acknowledged = name, wanted, acknowledged


class PermitsMismatch(InvalidInput):
    """The semaphore is in use with another number of permits.

    Cure: Give every user of the semaphore the same number of permits.
    """

    def __init__(self, name: str, permits: int, wanted: int) -> None:
        many = "1 permit" if permits == 1 else f"{permits} permits"
        super().__init__(f"semaphore {name!r} is in use with {many}, not with {wanted}")
        self.name, self.permits, self.wanted = name, permits, wanted


class PartlyReleased(LeaseError):
    """Some of the names could not be released; release again, or wait for their leases to expire.

    Cure: Release again, or let the leases of the names in `failures` expire.
    """

    def __init__(self, failures: Mapping[str, SegmentedError]) -> None:
        told = "; ".join(f"{name!r}: {failure}" for name, failure in failures.items())
        super().__init__(f"not released, release again or let the lease lapse: {told}")
        self.failures = dict(failures)


class StaleToken(LeaseError):
    """A higher fencing token has reached the resource, so this holder must stop.

    Cure: Stop: a later holder has written. Acquire the lock again.
    """

    def __init__(self, resource: str, token: int, newest: int | None) -> None:
        super().__init__(f"fencing token {token} is too old for {resource!r}, which has seen {newest}")
        self.resource, self.token, self.newest = resource, token, newest


class LoaderFailed(SegmentedError):
    """The loader of a value failed recently, and that failure is kept for a while.

    Cure: Correct what `kind` and `detail` name; the loader runs again when the kept failure ends.
    """

    def __init__(self, name: str, kind: str, detail: str) -> None:
        super().__init__(f"the loader of {name!r} failed a moment ago: {kind}: {detail}")
        self.name, self.kind, self.detail = name, kind, detail
