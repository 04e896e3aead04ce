"""Measures one strategy in its own process: `python -m bench.run_strategy`, started by `bench.children`.

Each line of stdin is an assignment (URLs may have passwords, which a process list would show). A fork of this process
runs it, so that the CPU time of the fork is the generator's only. When the parent ends for any reason, stdin ends, and
this process exits too. It reports in lines of JSON on stdout.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import TYPE_CHECKING

import gevent
import locust  # noqa: F401  # before redis and psycopg: it patches sockets, sleeping and locks for gevent
from gevent.os import tp_read

from bench.assignment import Assignment
from bench.forks import fork_for_each_line
from bench.measurement import measure
from bench.strategies import STRATEGIES
from segmented.errors import InvalidInput, SegmentedError
from segmented.orders import Gate, connect
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Mapping

EXIT_ORPHANED = 3
SPARE_CONNECTIONS = 2


def main(line: str) -> int:
    """Run the assignment, and return the exit code."""
    logging.getLogger("locust").addHandler(logging.NullHandler())  # the record has what its warnings about CPU say
    gevent.spawn(leave_with_the_parent)
    assignment = Assignment.from_json(line)
    try:
        record = _measure(assignment)
    except SegmentedError as error:
        say("failed", {"reason": str(error), "is_input": isinstance(error, InvalidInput)})
        return 1
    say("record", {"record": record})
    return 0


def say(event: str, said: Mapping[str, object]) -> None:
    """Send an event to the parent."""
    sys.stdout.write(json.dumps({"event": event, **said}) + "\n")
    sys.stdout.flush()


def _measure(assignment: Assignment) -> dict[str, object]:
    with RedisStore.from_url(assignment.pooled_url) as store:
        engine = connect(assignment.database, pool_size=assignment.buyers + SPARE_CONNECTIONS)
        try:
            Gate(engine).create()
            strategy = STRATEGIES[assignment.strategy](assignment.context(store, engine))
            record = measure(
                assignment, strategy, lambda phase, done, total: say(phase, {"done": done, "total": total})
            )
        finally:
            engine.dispose()
    return record.as_json()


def leave_with_the_parent() -> None:
    """Wait for the end of stdin, and exit at once."""
    while tp_read(sys.stdin.fileno(), 1):
        pass
    os._exit(EXIT_ORPHANED)


if __name__ == "__main__":
    fork_for_each_line(main)
