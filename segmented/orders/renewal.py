"""A background thread that repeats a renewal while work is in progress."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Self

from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

log = logging.getLogger(__name__)


class Renewal:
    """Calls `renew` every `every` seconds in a thread, until the `with` statement ends."""

    def __init__(self, renew: Callable[[], None], *, every: float) -> None:
        """Create a renewal; it starts with the `with` statement."""
        self._renew = renew
        self._every = every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="segmented-renewal", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """End, waiting for a renewal in progress for at most one interval."""
        self._ended.set()
        self._thread.join(self._every)

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            try:
                self._renew()
            except SegmentedError as error:  # the next one may reach the server
                log.warning("work was not renewed: %s", error)
