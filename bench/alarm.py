"""Waking a greenlet at an instant, closer than a millisecond.

gevent waits in whole milliseconds where its loop is epoll, which every arrival would be late by. On Linux the kernel's
own timer (timerfd_create(2)) ends the wait instead: it is a file descriptor like another. Elsewhere gevent's sleep is
used, and what it is late by stands in the record.
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
    """Sleep that long and not up to a millisecond more, in a greenlet; elsewhere as `time.sleep` does.

    A hold of 20 ms would be one of 21 otherwise, and those of many lanes would end together: at the same millisecond.
    """
    if not monkey.is_module_patched("time"):
        time.sleep(seconds)
        return
    alarm = _FREE.pop() if _FREE else Alarm()
    alarm.wait_until(time.monotonic() + seconds)
    _FREE.append(alarm)


class Alarm:
    """Wakes one greenlet, again and again. Use it in a `with` statement."""

    def __init__(self) -> None:
        """Take a timer from the kernel, where there is one."""
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
        """Give the timer back."""
        if self._fd is not None:
            self._watcher.close()
            os.close(self._fd)
            self._fd = None

    def wait_until(self, at: float) -> None:
        """Return at `at` of `time.monotonic`, never before; at once, after the others' turn, if that has passed."""
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
        os.read(fd, 8)  # or it stays readable


_FREE: Final[list[Alarm]] = []
"""Timers for `sleep`: as many as greenlets ever slept at once, kept until the process ends."""
