"""The step of the workers of `torture orders --mix`: it declines every seventh order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.orders import Decline
from tests.torture.event_log import number_of

if TYPE_CHECKING:
    from segmented.models.submitted import BegunOrder

EVERY: Final = 7


def is_declined(number: int) -> bool:
    """Return whether the customer's card is refused."""
    return number % EVERY == 0


def decide(begun: BegunOrder) -> None:
    """Charge the customer."""
    if is_declined(number_of(begun.order.order_id)):
        reason = "card refused"
        raise Decline(reason)
