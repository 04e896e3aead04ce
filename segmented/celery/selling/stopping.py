"""Ctrl-C and its relatives as one exception in the main thread, raised once, so that everything is stopped in peace."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_BY_SIGNAL: Final = 128


class Stopped(BaseException):
    """The user, or the system, wants us to stop."""

    def __init__(self, number: int) -> None:
        """Remember the signal."""
        super().__init__(signal.Signals(number).name)
        self.exit_code = EXIT_BY_SIGNAL + number


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise Stopped at the first of these signals, and ignore the others after it.

    A hang-up that is ignored already stays so: that is what `nohup` is for.
    """
    heard = [number for number in NUMBERS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, _stop_once) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop_once(number: int, _frame: FrameType | None) -> None:
    for other in NUMBERS:
        signal.signal(other, signal.SIG_IGN)
    raise Stopped(number)
