"""Critical sections: the work done after taking the units, while the lock, if any, is held; and sleeping precisely.

gevent waits in whole milliseconds if its loop uses epoll, and every arrival would be late by that much. On Linux the
kernel's own timer (timerfd_create(2)) ends the wait instead: it is an ordinary file descriptor. Elsewhere gevent's
sleep is used, and the record has its lateness.
"""

from __future__ import annotations

import ctypes
import math
import os
import random
import sys
import time
from dataclasses import dataclass
from typing import Final, Literal, get_args

import gevent
from gevent import monkey

from segmented.errors import InvalidInput

NANOSECONDS: Final = 1_000_000_000
_CLOCK_MONOTONIC: Final = 1
_ABSOLUTE: Final = 1
_READ: Final = 1
Kind = Literal["none", "sleep", "lognormal", "bimodal", "cpu", "commit"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
SPREAD: Final[tuple[Kind, ...]] = ("lognormal", "bimodal")
"""Sleeps of different lengths, whose mean is the hold."""
MILLISECONDS_MAX: Final = 2_000.0
"""Well below the ten seconds of a lease."""
SPREAD_MEAN_MAX: Final = 200.0
LOGNORMAL_SIGMA: Final = math.sqrt(math.log(2))
"""The standard deviation is the mean then."""
LONG_SHARE: Final = 0.05
LONG: Final = 10.5
SHORT: Final = 0.5
"""One in twenty bimodal holds takes 10.5 times the mean, and the others take half of it, which keeps the mean."""


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


def sleep(seconds: float) -> None:
    """Sleep in a greenlet, to less than a millisecond; elsewhere as `time.sleep` does.

    Otherwise a hold of 20 ms would take 21 ms, and the holds of many lanes would end in the same millisecond.
    """
    if not monkey.is_module_patched("time"):
        time.sleep(seconds)
        return
    alarm = _FREE.pop() if _FREE else Alarm()
    alarm.wait_until(time.monotonic() + seconds)
    _FREE.append(alarm)


class Alarm:
    """Wakes one greenlet repeatedly."""

    def __init__(self) -> None:
        """Create a kernel timer where the system has them."""
        self._libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        self._fd: int | None = None
        if self._libc is None:
            return
        fd = int(self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
        if fd >= 0:
            self._fd = fd
            self._hub = gevent.get_hub()
            self._watcher = self._hub.loop.io(fd, _READ)

    def close(self) -> None:
        """Release the timer."""
        if self._fd is not None:
            self._watcher.close()
            os.close(self._fd)
            self._fd = None

    def wait_until(self, at: float) -> None:
        """Return at `at` of `time.monotonic`, never before. If that has passed, only yield to other greenlets."""
        if at <= time.monotonic():
            gevent.sleep(0)
        while (left := at - time.monotonic()) > 0:
            if self._fd is None or self._libc is None:
                gevent.sleep(left)
            else:
                self._wait_for(self._libc, self._fd, at)

    def _wait_for(self, libc: ctypes.CDLL, fd: int, at: float) -> None:
        whole, part = divmod(math.ceil(at * NANOSECONDS), NANOSECONDS)
        setting = _Setting(_Timespec(0, 0), _Timespec(whole, part))
        libc.timerfd_settime(fd, _ABSOLUTE, ctypes.byref(setting), None)
        self._hub.wait(self._watcher)
        os.read(fd, 8)  # otherwise it stays readable


_FREE: Final[list[Alarm]] = []
"""Timers for `sleep`: one per concurrent sleeper, kept until the process ends."""


@dataclass(frozen=True, slots=True)
class Section:
    """A slow step: nothing, a sleep, CPU work, or a commit in PostgreSQL after a sleep of `ms`.

    A sleep takes `ms` each time, or that on average: lognormal with the mean as standard deviation, or bimodal, where
    one in twenty takes 10.5 times the mean and the others half of it. The run's seed repeats the lengths.

    One call of `run` serves a whole batch: that is the purpose of batches. The strategy does the commit itself, since
    its guarantees depend on what it writes.
    """

    kind: Kind
    ms: float = 0.0

    def __post_init__(self) -> None:
        """Validate kind and milliseconds. Raises InvalidInput."""
        if self.kind not in KINDS:
            raise InvalidInput(f"unknown critical section {self.kind!r}; known are: {', '.join(KINDS)}")
        if not 0 <= self.ms <= MILLISECONDS_MAX:  # also refuses NaN
            raise InvalidInput(f"a hold of {self.ms:g} ms must be between 0 and {MILLISECONDS_MAX:,g} ms")
        if self.kind == "none" and self.ms:
            raise InvalidInput(f"a critical section of kind none has no hold, so {self.ms:g} ms says two things")
        if self.kind in SPREAD and self.ms > SPREAD_MEAN_MAX:
            raise InvalidInput(f"a {self.kind} hold has a mean of up to {SPREAD_MEAN_MAX:g} ms, not {self.ms:g} ms")
        if self.kind in {"sleep", "cpu", *SPREAD} and not self.ms:
            raise InvalidInput(f"a critical section of kind {self.kind} needs a hold above 0 ms; with 0 it is: none")

    @property
    def commits(self) -> bool:
        """Return whether every order is stored in the order database."""
        return self.kind == "commit"

    def run(self) -> None:
        """Spend the time."""
        if self.kind == "cpu":
            until = time.thread_time() + self.ms / 1_000
            while time.thread_time() < until:
                pass
        elif self.ms:
            sleep(self.drawn_ms() / 1_000)

    def drawn_ms(self) -> float:
        """Return the length of the next hold, in milliseconds."""
        if self.kind == "lognormal":
            return min(
                random.lognormvariate(math.log(self.ms) - LOGNORMAL_SIGMA**2 / 2, LOGNORMAL_SIGMA), MILLISECONDS_MAX
            )
        if self.kind == "bimodal":
            return self.ms * (LONG if random.random() < LONG_SHARE else SHORT)
        return self.ms

    def __str__(self) -> str:
        """Return a short name: `none`, `20ms`, `lognormal-20ms`, `cpu-1ms`, `commit`, `commit+20ms`."""
        if self.kind == "none":
            return "none"
        if self.kind == "sleep":
            return f"{self.ms:g}ms"
        if self.kind in {"cpu", *SPREAD}:
            return f"{self.kind}-{self.ms:g}ms"
        return f"commit+{self.ms:g}ms" if self.ms else "commit"
