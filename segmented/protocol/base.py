"""Base classes of effects and operations.

An operation is one class: its fields are what is asked, `call` says how that is sent to Redis, and `answer` reads the
reply. The other methods have defaults; few operations need one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

from segmented.errors import SegmentedError
from segmented.models.locks import Lost, Released, Renewed
from segmented.protocol.wire import Call, Command, Dialect, Finish, Reply, Sight, text, unsure_if_lost

AnswerT_co = TypeVar("AnswerT_co", covariant=True)


class Effect(Generic[AnswerT_co]):
    """A request of a plan to its driver; the answer comes back at the `yield`."""

    __slots__ = ()


class Operation(Effect[AnswerT_co]):
    """An effect that a store executes in one step."""

    __slots__ = ()
    lease_kind: ClassVar[str] = ""
    """The kind of lease that it acquires, for metrics; empty if it acquires none."""

    def call(self) -> Call:
        """Return the script or the command that performs it."""
        raise NotImplementedError(f"Redis has no {type(self).__name__}")

    def answer(self, reply: Reply) -> AnswerT_co:
        """Read the reply to `call`; raises what the reply says."""
        raise NotImplementedError

    def native(self, dialect: Dialect) -> Sequence[Command]:  # noqa: ARG002  # of the operations that have such commands
        """Return commands of the server that do the same, the one that decides first; none if only the script does."""
        return ()

    def native_answer(self, replies: Sequence[Reply]) -> AnswerT_co | None:
        """Read the replies to `native`; None if only the script can tell."""
        raise NotImplementedError

    def continued(self, answer: Any) -> Finish | None:  # noqa: ANN401, ARG002  # AnswerT_co, which no parameter may have
        """Continue on the same connection, unless None: yield what to send, or an operation; return the answer."""
        return None

    def takes(self, answer: Any) -> bool:  # noqa: ANN401, ARG002  # as in `continued`
        """Return whether an attempt took something by this answer; otherwise it may be free for other waiters."""
        return False

    def wakes(self) -> tuple[str, str] | None:
        """Return the channel of the waiters that a release wakes, and the holder id that its message has."""
        return None

    def quietly(self) -> Self | None:
        """Return a release that wakes nobody, for a caller that sends the attempt of a waiter right behind it."""
        return None

    def acknowledges(self, *, is_gated: bool) -> bool:  # noqa: ARG002  # of pools alone
        """Return whether an answer promises a change to a caller, so that it waits for the pool's profile."""
        return False

    def doubt(self, answer: Any) -> Any:  # noqa: ANN401  # as in `continued`
        """Read the answer to a repeat after a lost reply: the first attempt may have taken effect."""
        return answer

    def sight(self, reply: Reply, answer: Any) -> Sight | None:  # noqa: ANN401, ARG002  # as in `continued`
        """Return what a reply and its answer tell of the name's progress, for the memory of the store."""
        epoch, sequence = getattr(answer, "epoch", 0), getattr(answer, "sequence", 0)
        return epoch, sequence if epoch else 0, getattr(answer, "fencing_token", None) or 0


class Release(Operation[AnswerT_co]):
    """An operation that ends something: it goes first, and ends although its caller is cancelled.

    It gives back what others may wait for, or it says how work ended that is not done again: a confirm that is dropped
    after the customer has paid lets the units be sold again.
    """

    __slots__ = ()


class LeaseRenewal(Operation[Renewed | Lost]):
    """The renewal of a lease, whose script answers {"renewed"} or {"lost"}."""

    __slots__ = ()
    ttl_ms: int

    def answer(self, reply: Reply) -> Renewed | Lost:
        """Read which of the two it was."""
        return Renewed(self.ttl_ms) if text(reply[0]) == "renewed" else Lost()


class LeaseRelease(Release[Released | Lost]):
    """The release of a lease, whose script answers {"released"} or {"lost"}."""

    __slots__ = ()

    def answer(self, reply: Reply) -> Released | Lost:
        """Read which of the two it was."""
        return Released() if text(reply[0]) == "released" else Lost()

    def doubt(self, answer: Any) -> Any:  # noqa: ANN401  # as the base says
        """Read "lost" as unsure: the first attempt may have released it."""
        return unsure_if_lost(answer)


def has_taken(attempt: Operation[object], answer: object) -> bool:
    """Return whether an attempt took what it asked for; otherwise that may be free for other waiters."""
    return not isinstance(answer, SegmentedError) and attempt.takes(answer)
