"""A step for the workers of fault tests: what it did stands in a file, and files beside it say what it is to do.

| file in the folder | what the step does |
| --- | --- |
| `down` | the provider is away: TryLater |
| `broken-<order id>` | raises for this order |
| `poison-<order id>` | ends its process by SIGKILL |
| `seconds` | takes so long, after the effect |
| `held` | stands still after the effect while the file is there |
"""

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, text

from segmented import Order
from segmented.models.submitted import BegunOrder
from segmented.orders import TryLater

FOLDER: Final = "ORDER_STEP_FOLDER"
STEP: Final = "tests.support.workers.order_step:run"
LOG: Final = "step-log"
AGAIN_SECONDS: Final = 0.5
LOOK_SECONDS: Final = 0.01
HELD_SECONDS: Final = 300.0


def run(order: BegunOrder) -> None:
    """Have an effect outside of Redis, or fail as the folder says."""
    folder = Path(os.environ[FOLDER])
    order_id = order.order.order_id
    if (folder / "down").exists():
        _note(folder, "away", order_id)
        reason = "the provider is away"
        raise TryLater(reason, seconds=AGAIN_SECONDS)
    if (folder / f"broken-{order_id}").exists():
        _note(folder, "broken", order_id)
        reason = "this order cannot be"
        raise ValueError(reason)
    if (folder / f"poison-{order_id}").exists():
        _note(folder, "poison", order_id)
        os.kill(os.getpid(), signal.SIGKILL)
    _note(folder, "effect", order_id)
    if (folder / "seconds").exists():
        time.sleep(float((folder / "seconds").read_text()))
    deadline = time.monotonic() + HELD_SECONDS
    while (folder / "held").exists() and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)


def runs(folder: Path, what: str = "effect") -> Counter[str]:
    """Return how often the step did this, by order."""
    path = folder / LOG
    lines = path.read_text().splitlines() if path.exists() else []
    return Counter(order_id for kind, order_id in (line.split(" ", 1) for line in lines) if kind == what)


def _note(folder: Path, what: str, order_id: str) -> None:
    """Append a line in one write, which no other process's line can be in the midst of."""
    log = os.open(folder / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(log, f"{what} {order_id}\n".encode())
    os.close(log)


def tell(order_id: str, state: str, reason: str) -> None:
    """Note how an order ended."""
    _note(Path(os.environ[FOLDER]), f"told-{state}{reason}", order_id)


def invoice(connection: Connection, orders: list[Order]) -> None:
    """Store a row for each order."""
    rows = [{"order_id": order.order_id} for order in orders]
    connection.execute(text("INSERT INTO invoices (order_id) VALUES (:order_id)"), rows)
