"""A publisher that puts orders into envelopes as they come: one at once when idle, ever larger ones under load."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Final, Self
from weakref import WeakSet

from segmented.errors import InvalidInput, StoreUnavailable
from segmented.forks import after_fork_in_child
from segmented.stock.outbox import ENVELOPE_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

LINGER_FIRST: Final = 0.001
LINGER_MOST: Final = 0.02
"""Seconds that an envelope waits for company, doubled from envelope to envelope while more orders come meanwhile."""
WAITING_MAX: Final = 100_000
"""Orders that wait to be published; those beyond are left to the sweep."""
CLOSE_SECONDS: Final = 5.0
log = logging.getLogger(__name__)
_publishers: WeakSet[EnvelopePublisher] = WeakSet()


class EnvelopePublisher:
    """Publishes in the background, for threads and for event loops; nothing is sent by the caller's thread.

    A broker that is away costs nothing but time: what cannot be sent is dropped here and stands in the outbox. A child
    of a fork has a publisher of its own in the same object; what waited in the parent is the parent's to send.
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
            message = f"envelope_max={envelope_max!r} must be a whole number between 1 and {ENVELOPE_MAX}"
            raise InvalidInput(message)
        self._send = send
        self._room = room
        self._envelope_max = envelope_max
        self._is_closed = False
        self.dropped_count = 0
        """Orders that were left to the sweep."""
        self._begin_empty()
        _publishers.add(self)

    def _begin_empty(self) -> None:
        self._waiting: dict[str, list[str]] = defaultdict(list)
        self._count = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, sku: str, order_ids: Sequence[str]) -> None:
        """Take these for publication and return at once."""
        if not order_ids:
            return
        with self._changed:
            if self._is_closed or self._count + len(order_ids) > WAITING_MAX or not self._has_thread():
                self.dropped_count += len(order_ids)
                return
            self._waiting[sku] += order_ids
            self._count += len(order_ids)
            self._changed.notify()

    def _has_thread(self) -> bool:
        if self._thread is None:
            thread = threading.Thread(target=self._publish, name="segmented-publisher", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads can be had, as at the end of the interpreter
                return False
            self._thread = thread
        return True

    def send(self, sku: str, order_ids: Sequence[str]) -> None:
        """Publish before returning, in as many envelopes as it takes. Raises StoreUnavailable if the broker is away."""
        for first in range(0, len(order_ids), self._envelope_max):
            self._send(sku, order_ids[first : first + self._envelope_max])

    def room(self) -> int | None:
        """Return how many envelopes the broker should get now, or None: as many as there are."""
        return self._room()

    def close(self) -> None:
        """Send what waits, for a bounded time, and end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_SECONDS)

    def __enter__(self) -> Self:
        """Return the publisher; closed at the end of the `with` statement."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Close."""
        self.close()

    def _publish(self) -> None:
        linger = 0.0
        while True:
            with self._changed:
                while not self._count and not self._is_closed:
                    linger = 0.0  # idle: the next order goes at once
                    self._changed.wait()
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
        """Take the next envelope, of the sku that was put first."""
        sku = next(iter(self._waiting))
        waiting = self._waiting.pop(sku)
        envelope, rest = waiting[: self._envelope_max], waiting[self._envelope_max :]
        if rest:
            self._waiting[sku] = rest  # behind the other skus
        self._count -= len(envelope)
        return sku, envelope

    def _try(self, sku: str, envelope: list[str]) -> None:
        try:
            self._send(sku, envelope)
        except StoreUnavailable as error:
            self.dropped_count += len(envelope)
            log.warning("%d orders of %r are left to the sweep: %s", len(envelope), sku, error)
        except Exception:
            self.dropped_count += len(envelope)
            log.exception("%d orders of %r are left to the sweep", len(envelope), sku)


def _forget_parents() -> None:
    # A child has no thread that publishes, and the parent's may have held the condition in the moment of the fork.
    for publisher in tuple(_publishers):
        publisher._begin_empty()  # noqa: SLF001  # of this module


after_fork_in_child(_forget_parents)
