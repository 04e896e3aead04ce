"""Errors of stores and databases that cannot be reached, or refuse."""

from __future__ import annotations

from segmented.errors.base import SegmentedError


class StoreError(SegmentedError):
    """The store did not answer.

    Cure: Catch it for every failure of a server or database.
    """


class StoreUnavailable(StoreError):
    """The store cannot be reached; whether the operation ran is unknown.

    Cure: Repeat the call with the same id: it takes effect once.
    """


class StoreBusy(StoreUnavailable):
    """No connection to the store was free in time, so nothing was sent: allow more connections, or wait longer.

    Cure: Allow more connections or a longer wait, and repeat the call.
    """


class AcknowledgementUnknown(StoreUnavailable):
    """The pool has made the change, but too few replicas or disks acknowledged it in time: repeat the same id.

    Cure: Repeat the call with the same id.
    """

    def __init__(self, sku: str, order_id: str | None, wanted: int, counted: int, detail: str) -> None:
        what = f"the outcome of {'a change' if order_id is None else repr(order_id)} in pool {sku!r} is unknown"
        super().__init__(f"{what}: {detail}; repeat the call with the same id")
        self.sku, self.order_id, self.wanted, self.counted = sku, order_id, wanted, counted


class LockUnreachable(StoreUnavailable):
    """The lock could not be acquired because its store cannot be reached; the protected work has not begun.

    Cure: Try again later, or record the work: see [when Redis is down](how-to/when-redis-is-down.md).
    """

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(detail)
        self.name = name


class StoreRefused(StoreError):
    """The store refused the operation; nothing changed.

    Cure: Correct the setting, right or memory limit that the message names, and repeat the call.
    """


class WrongKind(StoreRefused):
    """The key holds another type: another kind of lock, or something else, uses the name.

    Cure: Use another name for one of the two.
    """


class DatabaseUnavailable(StoreError):
    """The order database cannot be reached; whether the statement ran is unknown.

    Cure: Repeat the call with the same id.
    """


class TransactionConflict(StoreRefused):
    """The database rolled the transaction back because it conflicts with another: run it again from its start.

    Cure: Run the transaction again from its start.
    """

    def __init__(self, what: str, detail: str) -> None:
        super().__init__(f"{what}: the transaction is rolled back, run it again from its start: {detail}")
