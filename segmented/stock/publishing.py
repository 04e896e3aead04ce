"""A publisher that groups orders into envelopes: single orders at once when idle, larger envelopes under load."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Final, Self

from segmented.errors import InvalidInput, StoreUnavailable
from segmented.events.traces import CURRENT
from segmented.process import BeginsAnew
from segmented.stock.outbox import ENVELOPE_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

LINGER_FIRST: Final = 0.001
LINGER_MOST: Final = 0.02
"""Maximum seconds that an envelope waits for more orders; the wait doubles with each envelope while more orders come.
"""
WAITING_MAX: Final = 100_000
"""Maximum number of orders that wait to be published; further ones are left to the sweep."""
CLOSE_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 10.0
"""Seconds after which a thread without orders ends."""
log = logging.getLogger(__name__)


class EnvelopePublisher(BeginsAnew):
    """Publishes in the background, for threads and for event loops; the caller's thread sends nothing.

    An unavailable broker only costs time: an order that cannot be sent is dropped here and stays in the outbox. After a
    fork the child's copy starts empty; the parent sends the orders that waited in the parent.
    """

    def __init__(
        self,
        send: Callable[[str, Sequence[str]], None],
        *,
        room: Callable[[], int | None] = lambda: None,
        envelope_max: int = ENVELOPE_MAX,
    ) -> None:
        """Publish by `send`, which gets a sku and up to `envelope_max` order ids, and raises StoreUnavailable."""
        if type(envelope_max) is not int or not 1 <= envelope_max <= ENVELOPE_MAX:
            raise InvalidInput(f"envelope_max={envelope_max!r} must be a whole number between 1 and {ENVELOPE_MAX}")
        self._send = send
        self._room = room
        self._envelope_max = envelope_max
        self._is_closed = False
        self.dropped_count = 0
        """Number of orders left to the sweep."""
        self._start_anew()

    def __repr__(self) -> str:
        """Return the class and the numbers of orders that wait and that were dropped."""
        self._begin_if_new()
        return f"<EnvelopePublisher: {self._count} waiting, {self.dropped_count} dropped>"

    def _start_anew(self) -> None:
        super()._start_anew()
        self._waiting: dict[tuple[str, int | None], list[str]] = defaultdict(list)
        """Orders to send, by sku and segment."""
        self._count = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, sku: str, order_ids: Sequence[str], segment: int | None = None) -> None:
        """Queue these orders for publication and return at once. Orders of different segments share no envelope."""
        if not order_ids:
            return
        self._begin_if_new()
        CURRENT.traces.note(sku, order_ids)
        with self._changed:
            if self._is_closed or self._count + len(order_ids) > WAITING_MAX or not self._has_thread():
                self.dropped_count += len(order_ids)
                return
            self._waiting[sku, segment] += order_ids
            self._count += len(order_ids)
            self._changed.notify()

    def _has_thread(self) -> bool:
        if self._thread is None:
            thread = self._thread = threading.Thread(target=self._publish, name="segmented-publisher", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread can be started, as at the interpreter's exit
                self._thread = None
                return False
        return True

    def send(self, sku: str, order_ids: Sequence[str]) -> None:
        """Publish before returning, in as many envelopes as needed. Raises StoreUnavailable without a broker."""
        for first in range(0, len(order_ids), self._envelope_max):
            self._send(sku, order_ids[first : first + self._envelope_max])

    def room(self) -> int | None:
        """Return how many more envelopes the broker should get now, or None for no limit."""
        return self._room()

    def close(self) -> None:
        """Send waiting orders, for a bounded time, and end."""
        self._begin_if_new()
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def _publish(self) -> None:
        linger = 0.0
        while True:
            with self._changed:
                while not self._count and not self._is_closed:
                    linger = 0.0  # idle: the next order goes at once
                    if not self._changed.wait(IDLE_SECONDS) and not self._count:  # perhaps nobody has it any more
                        self._thread = None
                        return
                if self._count < self._envelope_max and linger and not self._is_closed:
                    self._changed.wait_for(lambda: self._count >= self._envelope_max or self._is_closed, linger)
                if not self._count:
                    return
                sku, envelope = self._next()
            self._try(sku, envelope)
            with self._changed:
                is_loaded = self._count > 0
            linger = min(LINGER_MOST, linger * 2 or LINGER_FIRST) if is_loaded else 0.0

    def _next(self) -> tuple[str, list[str]]:
        """Take the next envelope, of the sku and segment that have waited longest."""
        kind = next(iter(self._waiting))
        waiting = self._waiting.pop(kind)
        envelope, rest = waiting[: self._envelope_max], waiting[self._envelope_max :]
        if rest:
            self._waiting[kind] = rest  # behind the others
        self._count -= len(envelope)
        return kind[0], envelope

    def _try(self, sku: str, envelope: list[str]) -> None:
        try:
            self._send(sku, envelope)
        except StoreUnavailable as error:
            self.dropped_count += len(envelope)
            log.warning("%d orders of %r are left to the sweep: %s", len(envelope), sku, error)
        except Exception:
            self.dropped_count += len(envelope)
            log.exception("%d orders of %r are left to the sweep", len(envelope), sku)
