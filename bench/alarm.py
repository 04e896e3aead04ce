"""Wakes a greenlet at a given time with sub-millisecond precision.

gevent waits in whole milliseconds if its loop uses epoll, and every arrival would be late by that much. On Linux the
kernel's own timer (timerfd_create(2)) ends the wait instead: it is an ordinary file descriptor. Elsewhere gevent's
sleep is used, and the record has its lateness.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from math import ceil
from typing import Final, Self

import gevent
from gevent import monkey

NANOSECONDS: Final = 1_000_000_000
_CLOCK_MONOTONIC: Final = 1
_ABSOLUTE: Final = 1
_READ: Final = 1


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
    """Wakes one greenlet repeatedly. Use it in a `with` statement."""

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

    def __enter__(self) -> Self:
        """Nothing more."""
        return self

    def __exit__(self, *_: object) -> None:
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
        whole, part = divmod(ceil(at * NANOSECONDS), NANOSECONDS)
        setting = _Setting(_Timespec(0, 0), _Timespec(whole, part))
        libc.timerfd_settime(fd, _ABSOLUTE, ctypes.byref(setting), None)
        self._hub.wait(self._watcher)
        os.read(fd, 8)  # otherwise it stays readable


_FREE: Final[list[Alarm]] = []
"""Timers for `sleep`: one per concurrent sleeper, kept until the process ends."""
