"""Steps of the workers of a sale: one that waits for the test, so that it can interfere, and ones that fail."""

import os
import threading
from pathlib import Path

from segmented.models.submitted import BegunOrder
from segmented.orders import TryLater

FOLDER = "SALE_STEP_FOLDER"
LIMIT = "limit"
LOOK_SECONDS = 0.02
_never = threading.Event()


def limited(order: BegunOrder) -> None:
    """Stand still with an order of a higher number than the file `limit` says."""
    folder = Path(os.environ[FOLDER])
    number = int(order.order.order_id.rpartition("-")[2])
    while number > int((folder / LIMIT).read_text()):
        _never.wait(LOOK_SECONDS)


def later(_: BegunOrder) -> None:
    """Never work."""
    raise TryLater("the machine that packs is away")


def fail_of_a(order: BegunOrder) -> None:
    """Fail with order `a`."""
    if order.order.order_id == "a":
        raise ValueError("it cannot be packed")
