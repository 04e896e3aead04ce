"""Another sale on the same servers: a process whose threads take orders at a fixed rate, and note how long each took.

Each order has a due time, and its latency is counted from there. So an order that waits because the one before it was
slow counts the wait.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final, Self

from segmented.errors import SegmentedError
from segmented.models import Order, Settled
from segmented.orders import Gate, connect, open_gated, take_order
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.torture.supervisor import Processes

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    Sample = tuple[float, float]
    """When an order was due, in monotonic seconds, and how many seconds later it was confirmed."""

SKU: Final = "neighbour"
STOCK: Final = 1_000_000
SEGMENTS: Final = 16
THREADS: Final = 4
RATE: Final = 200.0
"""Orders per second, of all threads: well below what the servers can do on two cores."""
TAKE_SECONDS: Final = 5.0
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Addresses:
    """The servers of a sale."""

    url: str
    database: str


class Neighbour:
    """The other sale, as a context manager; it sells as long as the body runs."""

    def __init__(self, folder: Path, addresses: Addresses, sku: str) -> None:
        """Sell `sku` at these servers. Its pool is opened, once."""
        self._processes = Processes(folder)
        self._stack = ExitStack()
        self._addresses, self._sku = addresses, sku
        self._number = 0

    def __enter__(self) -> Self:
        """Return once it sells."""
        with ExitStack() as stack:
            stack.enter_context(self._processes)
            self._number = self._processes.start(_sell, self._addresses, self._sku, name="the other sale")
            self._receive(START_SECONDS)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self._stack.close()

    def stop(self) -> list[Sample]:
        """Stop the sale, and return all its orders. Raises SegmentedError if one was not confirmed."""
        self._processes.tell(self._number, "stop")
        return self._receive(STOP_SECONDS)

    def _receive(self, seconds: float) -> list[Sample]:
        found: list[Sample] | str = self._processes.hear(self._number, seconds)
        if isinstance(found, str):
            message = f"the other sale failed: {found}"
            raise SegmentedError(message)
        return found


def _sell(pipe: Connection, addresses: Addresses, sku: str) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(RedisStore.from_url(addresses.url))
        gate = stack.enter_context(Gate(connect(addresses.database, pool_size=THREADS)))
        pool = Pool(store, sku)
        open_gated(pool, gate, stock=STOCK, segments=SEGMENTS)
        sellers = [_Seller(pool, gate, thread) for thread in range(THREADS)]
        threads = [threading.Thread(target=seller.run) for seller in sellers]
        for thread in threads:
            thread.start()
        pipe.send([])
        pipe.recv()
        for seller in sellers:
            seller.has_stopped.set()
        for thread in threads:
            thread.join()
        failures = [seller.failure for seller in sellers if seller.failure]
        pipe.send(failures[0] if failures else [sample for seller in sellers for sample in seller.samples])


class _Seller:
    def __init__(self, pool: Pool, gate: Gate, number: int) -> None:
        self._pool, self._gate, self._number = pool, gate, number
        self.has_stopped = threading.Event()
        self.samples: list[Sample] = []
        self.failure = ""

    def run(self) -> None:
        began = time.monotonic() + self._number / RATE  # the threads take turns
        for number in count():
            due = began + number * THREADS / RATE
            if self.has_stopped.wait(max(0.0, due - time.monotonic())):
                return
            try:
                answer = take_order(self._pool, self._gate, Order(f"{self._number}-{number}"), timeout=TAKE_SECONDS)
            except SegmentedError as error:
                self.failure = f"{type(error).__name__}: {error}"
                return
            if not isinstance(answer, Settled) or answer.state != "confirmed":
                self.failure = f"an order got {answer}"
                return
            self.samples.append((due, time.monotonic() - due))
