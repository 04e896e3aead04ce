"""A process that has loaded its program forks for each line of stdin, so that each measurement has a fresh process.

Loading locust, celery, SQLAlchemy and the other libraries takes longer than most sales. A fork has everything loaded,
and no state of earlier forks. All forks share what an interpreter randomizes at its start (hash seed, memory layout).
So a session starts a new loader for each round: all cells of a round have the same loader, and each cell has all of
them.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

import gevent.os
from gevent.monkey import get_original

if TYPE_CHECKING:
    from collections.abc import Callable


def fork_for_each_line(main: Callable[[str], int]) -> None:
    """Run each line of stdin in a fork, one after another, and report its end; return when stdin ends."""
    wait = get_original("os", "waitpid")  # gevent's version would run its loop, which is for the forks
    gc.collect()
    gc.freeze()  # otherwise a collection in a fork would copy every loaded page
    for line in iter(sys.stdin.readline, ""):
        child = gevent.os.fork()
        if not child:
            _do_and_leave(main, line)
        code = os.waitstatus_to_exitcode(wait(child, 0)[1])
        sys.stdout.write("\n" + json.dumps({"event": "left", "code": code}) + "\n")  # it may have died in mid-line
        sys.stdout.flush()


def _do_and_leave(main: Callable[[str], int], line: str) -> NoReturn:
    exit_code = 1
    try:
        exit_code = main(line)
    except BaseException:  # noqa: BLE001  # it must not continue as the loader
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # everything is closed, and clearing so many imports takes half a second
