"""The child's side of `bench.children`: a process that forks for each assignment.

Each line of stdin is an assignment (URLs may have passwords, which a process list would show). A fork of this process
runs it, so that the CPU time of the fork is the generator's only. When the parent ends for any reason, stdin ends, and
this process exits too. It reports in lines of JSON on stdout.

Why it forks: loading locust, celery, SQLAlchemy and the other libraries takes longer than most sales. A fork has
everything loaded, and no state of earlier forks. All forks share what an interpreter randomizes at its start (hash
seed, memory layout). So a session starts a new loader for each round: all cells of a round have the same loader, and
each cell has all of them.
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
from gevent.os import tp_read

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EXIT_ORPHANED = 3


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


def say(event: str, said: Mapping[str, object]) -> None:
    """Send an event to the parent."""
    sys.stdout.write(json.dumps({"event": event, **said}) + "\n")
    sys.stdout.flush()


def leave_with_the_parent() -> None:
    """Wait for the end of stdin, and exit at once."""
    while tp_read(sys.stdin.fileno(), 1):
        pass
    os._exit(EXIT_ORPHANED)
