"""The rule of confirm and cancel: what was not done as asked raises. The operations answer; the methods ask here.

A repeat is done as asked: it changes nothing and its answer has `replay=True`. So is the cancel of an order whose units
are back already, whichever state it is in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from segmented.errors import AlreadySettled, GrantSuperseded, InvalidInput, SegmentedError
from segmented.models import CartSettled, Reserved, Returned, Settled, Superseded

EndT = TypeVar("EndT", Settled, CartSettled)


def as_confirmed(answer: EndT) -> EndT:
    """Return the answer of a confirm. Raises AlreadySettled if the order, or cart, has ended otherwise."""
    if answer.state != "confirmed":
        raise AlreadySettled(answer)
    return answer


def as_cancelled(answer: EndT | Superseded) -> EndT:
    """Return the answer of a cancel. Raises AlreadySettled if it is sold, GrantSuperseded if another holder has it."""
    if isinstance(answer, Superseded):
        raise GrantSuperseded(answer.order_id, answer.fencing_token)
    if answer.state == "confirmed":
        raise AlreadySettled(answer)
    return answer


def as_reserved(answer: Reserved | Settled, cannot: str) -> Reserved:
    """Return what a reserved order has now. Raises AlreadySettled, which names what it `cannot`, if it has ended."""
    if isinstance(answer, Settled):
        raise AlreadySettled(answer, cannot)
    return answer


def as_returned(answer: Returned | Settled | None, order_id: str) -> Returned:
    """Return the answer of a return. Raises AlreadySettled if the order is sold no more, InvalidInput if not yet."""
    if answer is None:
        raise InvalidInput(f"order {order_id!r} is reserved, not sold: cancel it, or change its quantity")
    if isinstance(answer, Settled):
        raise AlreadySettled(answer, "nothing of it can be returned")
    return answer


def all_as_asked(
    check: Callable[[Settled], Settled], answers: Iterable[Settled | SegmentedError | None]
) -> list[Settled | SegmentedError]:
    """Return the answers of many; the error of an order that has ended otherwise takes its answer's place."""
    return [_as_asked(check, answer) for answer in answers if answer is not None]  # None is an answer to expire only


def _as_asked(check: Callable[[Settled], Settled], answer: Settled | SegmentedError) -> Settled | SegmentedError:
    if isinstance(answer, SegmentedError):
        return answer
    try:
        return check(answer)
    except AlreadySettled as error:
        return error
