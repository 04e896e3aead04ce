"""Base classes of effects and operations.

An operation is one class: its fields are what is asked, `call` says how that is sent to Redis, and `answer` reads the
reply. The other methods have defaults; few operations need one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar

from segmented.errors import AcknowledgementUnknown, SegmentedError
from segmented.models import Busy, Closed, LimitReached, SoldOut, Superseded, TooFew
from segmented.models.locks import Lost, Released, Renewed
from segmented.protocol.wire import (
    Call,
    Command,
    Dialect,
    Finish,
    Reply,
    Send,
    Sight,
    counted,
    replicas_wait,
    text,
    unsure_if_lost,
)

if TYPE_CHECKING:
    from segmented.models.pools import Profile


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


def is_one(_: object, reply: Reply) -> bool:
    """Return whether the reply is 1: `answer` of an operation that says whether it found or did what it names."""
    return int(reply) == 1


def ignored(_: object, reply: Reply) -> None:
    """Return nothing: `answer` of an operation after which the same is true whatever the reply says."""


def has_taken(attempt: Operation[object], answer: object) -> bool:
    """Return whether an attempt took what it asked for; otherwise that may be free for other waiters."""
    return not isinstance(answer, SegmentedError) and attempt.takes(answer)


# --- acknowledgements of a write, by replicas (WAIT) or by the disk (WAITAOF) ---
#
# Both count for the last write of their own connection, and neither blocks inside a script. So they follow a script in
# the same pipeline. On a connection that has written nothing they count at once, so a script that only repeats an
# answer writes something too (shared/seen.lua). Falling short undoes nothing: the outcome is unknown, and the same id
# settles it.

BLOCKING: Final = frozenset({"WAIT", "WAITAOF"})
"""Commands whose last argument is how long they may block, in milliseconds."""
DEADLINE_SHARE: Final = 0.9
"""Share of a call's remaining time for which the server may wait, so that its answer still arrives in time."""
SETTLES_NOTHING: Final = (SoldOut, Busy, Closed, LimitReached, Superseded, TooFew, SegmentedError, type(None))
"""Answers that promise nothing: they need no acknowledgement."""


def profile_wait(profile: Profile) -> Command:
    """Return the command that waits for what a profile wants."""
    if profile.kind == "fsync":
        return ("WAITAOF", 1, 0, profile.within_ms)
    return replicas_wait(profile.replicas, profile.within_ms)


def bounded(send: Send, seconds_left: float) -> list[Command]:
    """Return the commands so that none of them waits beyond the end of the call."""
    ms_max = max(1, int(min(seconds_left * DEADLINE_SHARE, send.patience) * 1000))
    return [
        (*command[:-1], min(int(command[-1]), ms_max)) if command[0] in BLOCKING else command
        for command in send.commands
    ]


class Shortfall(NamedTuple):
    """Too few acknowledgements: how many there were, and why."""

    counted: int
    reason: str


def shortfall(profile: Profile, reply: Reply) -> Shortfall | None:
    """Read the reply to `profile_wait`; None if enough acknowledged the change."""
    try:
        count = counted(reply)
    except Exception as error:  # noqa: BLE001  # of the driver, which locks do not import
        return Shortfall(0, f"the server refused to wait for profile {profile}: {error}")
    if count >= profile.wanted:
        return None
    within = f"{count} acknowledged it within {profile.within_ms} ms"
    return Shortfall(count, f"{within}, and profile {profile} wants {profile.wanted}")


def unknown(operation: Any, answer: Any, profile: Profile, lacking: Shortfall) -> Any:  # noqa: ANN401  # of any type
    """Return AcknowledgementUnknown in place of an answer that promises something; a refusal is unchanged.

    An operation on many orders gets one in place of each order's answer.
    """

    def unless_refused(one: object, order_id: str | None) -> object:
        if isinstance(one, SETTLES_NOTHING):
            return one
        wanted, (count, reason) = profile.wanted, lacking
        return AcknowledgementUnknown(_pool(operation), order_id, wanted=wanted, counted=count, detail=reason)

    if isinstance(answer, tuple):
        return tuple(unless_refused(one, order_id) for one, order_id in zip(answer, _ids(operation), strict=False))
    return unless_refused(answer, _id(operation))


def _pool(operation: Any) -> str:  # noqa: ANN401  # each operation names its pool in its own way
    cart = getattr(operation, "cart", None)
    found = [getattr(operation, name, "") for name in ("sku", "shard", "home")]
    return next(filter(None, found), "") or cart.home  # type: ignore[union-attr]  # it has one of the four


def _ids(operation: Any) -> list[str]:  # noqa: ANN401  # each operation names its pool in its own way
    if hasattr(operation, "orders"):
        return [order.order_id for order in operation.orders]
    return list(operation.order_ids)


def _id(operation: Any) -> str | None:  # noqa: ANN401  # each operation names its pool in its own way
    source = getattr(operation, "order", None) or getattr(operation, "cart", None) or operation
    found = (getattr(source, name, None) for name in ("order_id", "change_id", "cart_id"))
    return next(filter(None, found), None)
