"""Steps of the workers of a sale: slow ones, so that a test can interfere, and ones that fail."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from segmented.orders import TryLater

if TYPE_CHECKING:
    from segmented.models.submitted import BegunOrder

SLOW_SECONDS = 0.002
_never = threading.Event()


def slow(_: BegunOrder) -> None:
    """Take two milliseconds."""
    _never.wait(SLOW_SECONDS)


def later(_: BegunOrder) -> None:
    """Never work."""
    message = "the machine that packs is away"
    raise TryLater(message)


def fail_of_a(order: BegunOrder) -> None:
    """Fail with order `a`."""
    if order.order.order_id == "a":
        message = "it cannot be packed"
        raise ValueError(message)
