"""A process that has loaded its program forks for each line of stdin: what is measured has a fresh process at once.

To load locust, celery, SQLAlchemy and the peers takes longer than most sales last. A fork has it all, and nothing of
the fork before it. What an interpreter draws anew (its seed for hashes, where things lie in memory) all forks share.
So a session of the bench takes another loader for each round: within a round all cells have the same, and each cell has
every round's.
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
    """Give each line to a fork, one after the other, and say when it is gone; ends with stdin."""
    wait = get_original("os", "waitpid")  # gevent's would run its loop, which is for the forks
    gc.collect()
    gc.freeze()  # or a collection in a fork would copy every page of what was loaded
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
    except BaseException:  # noqa: BLE001  # it must not go on as the loader
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # all is closed, and so much that is imported takes half a second to be cleared away
