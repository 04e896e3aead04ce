"""The root of all errors, and the errors of unusable input and of stores and databases.

Errors keep their constructor's arguments, so that pickle and the result backends of Celery can rebuild them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Signature, signature
from typing import Any, ClassVar, Final, Protocol, Self


class _Rebuildable(Exception):
    """An error whose `args` are its constructor's arguments, but for those that can only be given by name."""

    __signature__: ClassVar[Signature]

    def __init_subclass__(cls) -> None:
        """Show the constructor's parameters: `inspect` of some Pythons would show those of `__new__`."""
        _, *parameters = signature(cls.__init__).parameters.values()
        cls.__signature__ = Signature(parameters)

    def __new__(cls, *arguments: object, **named: object) -> Self:
        """Note the arguments, those given by name at their positions."""
        error = super().__new__(cls)
        parameters = [one for one in cls.__signature__.parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
        error.args = (*arguments, *(named.get(one.name, one.default) for one in parameters[len(arguments) :]))
        return error

    def __init__(self, message: str) -> None:
        """Create the error with one clear sentence."""
        self._message = message

    def __str__(self) -> str:
        return self._message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._message!r})"

    def __reduce__(self) -> tuple[Callable[..., _Rebuildable], tuple[object, ...], dict[str, Any]]:
        """Support pickling and copying."""
        return _unpickled, (type(self), *self.args), vars(self)


def _unpickled(kind: type[_Rebuildable], *arguments: object) -> _Rebuildable:
    return kind.__new__(kind, *arguments)


FOREIGN: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Errors of code that reads a value which another program may have written, without a check of its shape."""


class SegmentedError(_Rebuildable):
    """The operation failed.

    Cure: Catch it for every error of the library; the subclass and its message say what to do.
    """

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])


class InvalidInput(SegmentedError, ValueError):
    """The input is not usable.

    Cure: Correct the value that the message names; nothing was changed.
    """


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


class DedupError(SegmentedError):
    """The call was not run.

    Cure: Catch it for every refusal of a deduplicated call; `key` names the record.
    """

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


class InFlight(DedupError):
    """Another call with the key is waiting or running; in HTTP, 409.

    Cure: Ask again later, or wait for it with `timeout=seconds`.
    """

    def __init__(self, key: str, message_id: str, state: str, free_in: float | None) -> None:
        lapses = "" if free_in is None else f", and lapses in {free_in:g} s unless it is renewed"
        super().__init__(f"key {key!r} is taken: message {message_id!r} is {state}{lapses}", key)
        self.message_id = message_id
        self.state = state
        self.free_in = free_in


class OtherPayload(DedupError):
    """The key was used with another payload, or by another task of the same key space; in HTTP, 422.

    Cure: Use a new key for a new call, or send the arguments of the first one; wait for another task to end.
    """

    def __init__(self, key: str, message_id: str, call: str = "", compared: str = "", *, task: str = "") -> None:
        """Create the error with the id of the message that used the key first.

        `call` names the function or task and how its key is made, `compared` the arguments that a repeat must have, and
        `task` another task that has the key.
        """
        of, same = f" of {call}" if call else "", f": a repeat needs the same {compared}" if compared else ""
        by = f"by task {task!r}, which shares its key space," if task else "with another payload,"
        super().__init__(f"key {key!r}{of} was used {by} by message {message_id!r}{same}", key)
        self.message_id = message_id
        self.task = task


class EffectUnknown(DedupError):
    """It is unknown whether the work was done: its holder died, or the other side did not answer.

    Cure: Find out at the provider whether it was done, then settle the key by hand or with a resolver.
    """

    def __init__(self, key: str, message_id: str) -> None:
        what = "it is not known whether the work was done; settle it by hand or with a resolver"
        super().__init__(f"key {key!r} of message {message_id!r}: {what}", key)
        self.message_id = message_id


class CallCancelled(DedupError):
    """The message was cancelled before it began.

    Cure: Nothing to do; publish the call again if it should run.
    """

    def __init__(self, key: str) -> None:
        super().__init__(f"the message under key {key!r} was cancelled", key)


class AttemptSuperseded(DedupError):
    """A later attempt of the same message was already published, so this copy is not run.

    Cure: Nothing to do: the later attempt runs.
    """

    def __init__(self, key: str, attempt: int) -> None:
        super().__init__(f"attempt {attempt} of the message under key {key!r} was published already", key)
        self.attempt = attempt


class FailedBefore(DedupError):
    """The first call with the key failed, and repeats get its error.

    Cure: Correct what `kind` and `detail` name, then free the key or wait until the kept failure ends.
    """

    def __init__(self, key: str, kind: str, detail: str) -> None:
        super().__init__(f"the first call with key {key!r} failed: {kind}: {detail}", key)
        self.kind = kind
        self.detail = detail


class ResultUnkept(DedupError):
    """The first call with the key ended, but its result could not be kept for repeats.

    Cure: The work is done; make its result smaller or serializable, or raise `size_max`.
    """

    def __init__(self, key: str, detail: str) -> None:
        super().__init__(f"the first call with key {key!r} ended, but its result was not kept: {detail}", key)
        self.detail = detail


class RunLost(DedupError):
    """The outcome was not kept: another holder has the run, an operator freed it, or its record is gone.

    Cure: Check whether the effect happened; raise `ttl` if runs last longer than the lease is renewed.
    """

    def __init__(self, key: str) -> None:
        what = "it lapsed and went to another holder, was freed, or the store lost its memory"
        super().__init__(f"the run under key {key!r} is lost, and its outcome not kept: {what}", key)


class Kept(Protocol):
    """The stored outcome of a call: see `segmented.dedup.Replay`."""

    @property
    def message_id(self) -> str:
        """Return the id of the message that made it."""

    @property
    def age(self) -> float:
        """Return the seconds since the first call ended."""

    @property
    def result(self) -> Any:  # noqa: ANN401  # any result of the first call
        """Return the stored result."""


class AlreadyDone(DedupError):
    """The effect under this key was committed before: roll the transaction back and use the stored outcome.

    Cure: Roll your transaction back and use `result`.
    """

    def __init__(self, key: str, replay: Kept) -> None:
        super().__init__(f"key {key!r} was done before, by message {replay.message_id!r}: roll back", key)
        self.replay = replay

    @property
    def result(self) -> Any:  # noqa: ANN401  # any result of the first call
        """Return the stored result. Raises ResultUnkept if it could not be stored."""
        return self.replay.result
