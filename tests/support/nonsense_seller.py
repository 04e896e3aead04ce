"""A process that sells from a gated pool whose numbers on the stock's server are nonsense, and logs what happens.

Each line of the log is a word and an order id: `body` before the work on an order, `sold` after its answer, and
`superseded` or `frozen` for the errors. An order whose body has run is not taken again, whatever its answer was.
"""

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from segmented import Order, Pool, RedisStore, Settled
from segmented.errors import GrantSuperseded, PoolFrozen, SegmentedError
from segmented.orders import Gate, connect, rebuild
from segmented.orders.sale import take_order

SKU: Final = "mug"
ORDERS_PER_STORE: Final = 50
"""A new store has seen no token, and believes the server."""
PAUSE: Final = 0.005


@dataclass(frozen=True, slots=True)
class Seller:
    """The addresses of one selling process. It ends when the file `stop` exists."""

    number: int
    url: str
    database: str
    log: str
    stop: str


def be_seller(seller: Seller) -> None:
    """Sell until told to stop."""
    log = os.open(seller.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    numbers = count()
    order_id = f"{seller.number}-{next(numbers)}"
    with Gate(connect(seller.database)) as gate:
        while not Path(seller.stop).exists():
            with RedisStore.from_url(seller.url) as store:
                pool = Pool(store, SKU, ttl=0.5)
                for _ in range(ORDERS_PER_STORE):
                    if sell_one(pool, gate, order_id, log):
                        order_id = f"{seller.number}-{next(numbers)}"


def sell_one(pool: Pool, gate: Gate, order_id: str, log: int) -> bool:
    """Take an order once; return whether its body has run, or it has its answer."""
    has_run: list[str] = []

    def note(word: str) -> None:
        os.write(log, f"{word} {order_id}\n".encode())

    def body(_: object) -> None:
        has_run.append(order_id)
        note("body")

    try:
        answer = take_order(pool, gate, Order(order_id), timeout=0.2, body=body)
    except GrantSuperseded:
        note("superseded")
    except PoolFrozen:
        note("frozen")
        with suppress(SegmentedError):
            rebuild(pool, gate)
    except SegmentedError as error:
        note(type(error).__name__)
    else:
        if isinstance(answer, Settled):
            note("sold" if answer.state == "confirmed" else answer.state)
            return True
        threading.Event().wait(PAUSE)
    return bool(has_run)
