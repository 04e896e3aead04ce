"""The step of the workers of `torture orders --mix`: it declines every seventh order."""

from typing import Final

from segmented.models.submitted import BegunOrder
from segmented.orders import Decline
from tests.torture.event_log import number_of

EVERY: Final = 7


def is_declined(number: int) -> bool:
    """Return whether the customer's card is refused."""
    return number % EVERY == 0


def decide(begun: BegunOrder) -> None:
    """Charge the customer."""
    if is_declined(number_of(begun.order.order_id)):
        reason = "card refused"
        raise Decline(reason)
