"""The program that a test starts instead of `celery`: the same command, with the named points and a shifted clock.

`python -P worker_main.py CONTROL_FOLDER CLOCK_OFFSET TREE_FD GUARD_FD <options of celery>`

It runs as a file, because gevent must patch modules before our package imports them.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

GUARD: Final = "guard"
"""File in the control folder with the process id of the guard that kills the worker when its test is gone."""
DISMISSED: Final = b"q"
"""The starter sends this when the worker is gone. If its end of the pipe closes without it, the starter is gone."""

PREFORK: Final = "prefork"


def main(folder: Path, clock_offset: float, tree_fd: int, guard_fd: int, options: list[str]) -> None:
    """Run Celery's command line in this process."""
    _follow_starter(folder, tree_fd, guard_fd)
    if clock_offset:
        _shift_clock(clock_offset)
    sys.argv = ["celery", *options]
    sys.path.insert(0, str(Path.cwd()))  # like `python -m celery`
    import_module("celery").maybe_patch_concurrency()  # like Celery's own start: gevent must come first
    imports: Any = import_module("segmented.imports")
    with imports.without_collecting():
        if clock_offset:
            _shift_celery(dt.timedelta(seconds=clock_offset))
        control: Any = import_module("segmented.testing.control")
        import_module("segmented.testing.wrapping").put_points(control.Control(folder))
        _load(options[options.index("-A") + 1], options[options.index("--pool") + 1])
        command: Any = import_module("celery.bin.celery")
    sys.exit(command.main())


def _follow_starter(folder: Path, tree_fd: int, guard_fd: int) -> None:
    """Start a guard outside our process group that kills the group when the starter disappears without notice.

    It is a separate process, because a frozen worker cannot act, and because a thread here would interfere with forks.
    It is not a child of the worker, so that no pool waits for it. It holds `guard_fd` open while it lives; all other
    processes hold `tree_fd`.
    """
    group = os.getpgrp()
    middle = os.fork()
    if not middle:
        if os.fork():
            os._exit(0)
        os.setsid()
        os.close(tree_fd)
        (folder / GUARD).write_text(f"{os.getpid()}\n")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if os.read(sys.stdin.fileno(), 1) != DISMISSED:
            os.killpg(group, signal.SIGKILL)
        os._exit(0)
    os.waitpid(middle, 0)
    os.close(guard_fd)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.close(nothing)


def _load(name: str, pool: str) -> None:
    """Import the app and its tasks. With prefork the app's setting would win, since that is the default."""
    find_app: Any = import_module("celery.app.utils").find_app
    with contextlib.suppress(Exception):  # Celery's own command reports errors of the app
        app = find_app(name)
        app.loader.import_default_modules()
        if pool == PREFORK:
            app.conf.worker_pool = PREFORK


def _shift_clock(seconds: float) -> None:
    """Shift `time.time` and `time.time_ns`, before the modules that take them by name are imported."""

    def shifted(real: Callable[[], Any], offset: float) -> Callable[[], Any]:
        return lambda: real() + offset

    for name, offset in (("time", seconds), ("time_ns", round(seconds * 1e9))):
        setattr(time, name, shifted(getattr(time, name), offset))


def _shift_celery(offset: dt.timedelta) -> None:
    """Shift Celery's `datetime`, with which it computes countdowns and the expiry of messages."""
    celery_app: Any = import_module("celery.app.base")
    real_datetime = dt.datetime
    real_now = celery_app.Celery.now
    celery_app.Celery.now = lambda app: real_now(app) + offset
    request: Any = import_module("celery.worker.request")

    class Shifted(dt.datetime):
        """A datetime with a shifted `now`."""

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:  # noqa: ANN401  # it returns the class it replaces
            return real_datetime.now(tz) + offset

    request.datetime = Shifted


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
