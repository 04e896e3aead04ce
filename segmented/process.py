"""How a process ends and forks: exit codes, the hooks of a child, the id, and locks that a fork or gevent replaces."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from typing import Final

EXIT_INVALID_INPUT: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141
UNWRITABLE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
"""Errors of a write to standard output, other than a closed pipe."""


def tell(sentence: str) -> None:
    """Write a sentence to standard error, if there is one."""
    if sys.stderr is not None:
        is_json = os.environ.get("SEGMENTED_LOG_FORMAT") == "json"
        sys.stderr.write(_as_json(sentence) if is_json else f"segmented: {sentence}\n")


def _as_json(sentence: str) -> str:
    import json  # noqa: PLC0415  # few processes write it

    return json.dumps({"level": "error", "logger": "segmented", "message": sentence}) + "\n"


def escape_output() -> None:
    """Make a character that the terminal, or the reader of a pipe, has no code for an escape, instead of an error.

    A command says what it has done after it has done it: an error then would look like a failure. Encodings other than
    UTF-8 are those of redirected output on Windows and of ISO 8859 locales.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            with suppress(OSError):  # a terminal cannot say its position, which Python asks for last
                stream.reconfigure(errors="backslashreplace")


def interrupted() -> int:
    """Report the interruption and return the exit code."""
    tell("interrupted")
    return EXIT_INTERRUPTED


def output_failed(error: OSError) -> int:
    """Return the exit code of a command that could not write its output; raise any other `error` again."""
    is_gone = isinstance(error, BrokenPipeError)
    if not is_gone and error.errno not in UNWRITABLE:
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # buffered output would raise again at exit
    if is_gone:
        return EXIT_BROKEN_PIPE
    tell(f"standard output cannot be written: {error.strerror}")
    return EXIT_INVALID_INPUT


def no_output() -> int:
    """Return the exit code of a command that has no standard output."""
    tell("standard output is closed: send it to a file, a pipe or /dev/null")
    return EXIT_INVALID_INPUT


def after_fork_in_child(forget: Callable[[], object]) -> None:
    """Call `forget` in each child that this process forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)


class ThisProcess:
    """The id of this process, asked once: each question to the system costs more than a microsecond."""

    def __init__(self) -> None:
        """Ask for it, and again in each child that this process forks."""
        self.process_id = os.getpid()
        after_fork_in_child(self._ask)

    def _ask(self) -> None:
        self.process_id = os.getpid()


THIS: Final = ThisProcess()


class BeginsAnew:
    """State with locks and threads. It starts again in a forked child, and once gevent has patched `threading`.

    A thread of the parent may have held a lock at the fork. A lock that was made before the patch stops all greenlets
    of its thread when one of them waits for it.
    """

    def _start_anew(self) -> None:
        """Create the locks, and forget threads and those that wait."""
        self._process_id, self._lock_kind = THIS.process_id, threading.Lock

    def _begin_if_new(self) -> None:
        """Start again if the process or its kind of threads has changed."""
        if self._process_id != THIS.process_id or self._lock_kind is not threading.Lock:
            self._start_anew()


class Guard(BeginsAnew):
    """A lock for short sections: `with guard.lock:`.

    It is reentrant, because a signal handler or a finalizer may run in the middle of a section, in the same thread, and
    use the library. An exception of a handler cannot leave it locked, as it could if this class were entered itself.
    """

    def __init__(self) -> None:
        self._start_anew()

    def _start_anew(self) -> None:
        super()._start_anew()
        self._lock = threading.RLock()

    @property
    def lock(self) -> threading.RLock:
        """Return the lock of this process and this kind of threads."""
        self._begin_if_new()
        return self._lock
