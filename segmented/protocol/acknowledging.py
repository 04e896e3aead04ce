"""Acknowledgements of a write, by replicas (WAIT) or by the disk (WAITAOF).

Both count for the last write of their own connection, and neither blocks inside a script. So they follow a script in
the same pipeline. On a connection that has written nothing they count at once, so a script that only repeats an answer
writes something too (shared/profile.lua). Falling short undoes nothing: the outcome is unknown, and the same id settles
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from segmented.errors import AcknowledgementUnknown, SegmentedError
from segmented.models import Busy, Closed, LimitReached, SoldOut, Superseded, TooFew
from segmented.protocol.wire import Command, Reply, Send, counted, replicas_wait

if TYPE_CHECKING:
    from segmented.models.pools import Profile

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
