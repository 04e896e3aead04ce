"""Errors of a deduplicated call that was not run, or whose outcome was not kept."""

from __future__ import annotations

from typing import Any, Protocol

from segmented.errors.base import SegmentedError


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
