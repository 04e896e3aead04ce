"""Tell when waiters have come to rest, so that a test can go on without a guess."""

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from math import inf
from typing import Any, Final, Self, TypeAlias
from uuid import uuid4

import redis

from segmented.plans import Line

PARKED_SECONDS: Final = 120.0
"""Seconds that something may take to become so, on a machine that stands still now and then."""
LOOK_SECONDS: Final = 0.002
SCRIPTS: Final = ("eval", "evalsha", "delifeq")


def lines_of(store: Any) -> dict[str, Line]:  # noqa: ANN401  # a store of either colour
    """Return the lines in which somebody waits, by channel."""
    return store.wakeups.lines()  # type: ignore[no-any-return]  # of either colour


def has_come_to_rest(store: Any, waiters: int) -> bool:  # noqa: ANN401  # a store of either colour
    """Do `waiters` stand in line, nobody out trying, and does the head of each line know until when it may sleep?"""
    lines = lines_of(store).values()
    if sum(len(line) for line in lines) != waiters:
        return False
    if any(len(line.parked) < len(line) for line in lines):
        return False
    return all(line.due < inf for line in lines)  # set by the head's second try, the last before it parks


async def parked(store: Any, waiters: int) -> None:  # noqa: ANN401  # a store of either colour
    """Wait, in its event loop, until so many wait in the store's lines."""
    async with asyncio.timeout(PARKED_SECONDS):
        while not has_come_to_rest(store, waiters):  # noqa: ASYNC110  # a line has no event for coming to rest
            await asyncio.sleep(LOOK_SECONDS)


def wait_until(is_so: Callable[[], bool], *, seconds: float = PARKED_SECONDS) -> None:
    """Wait until something is so; raises TimeoutError."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError(f"not so within {seconds:g} s")
        time.sleep(LOOK_SECONDS)


def scripts_run(server: redis.Redis) -> int:
    """Count what the server has run for locks and pools: scripts, and its own command of compare-and-delete."""
    found = server.info("commandstats")
    return sum(found.get(f"cmdstat_{command}", {"calls": 0})["calls"] for command in SCRIPTS)


class ScriptCount:
    """Counts the same as `scripts_run`, from now on, but only of clients' requests about one name.

    So what else happens on a server that tests share changes no count.
    """

    def __init__(self, server: redis.Redis, name: str) -> None:
        """Begin to count the scripts that have `name` as a whole word in a key: of a lock or of any part of a pool."""
        self._server = server
        self._name = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
        self._count = 0
        self._opened = ExitStack()
        self._monitor = self._opened.enter_context(server.monitor())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def __call__(self) -> int:
        """Return the count of all that the server has run before now."""
        mark = uuid4().hex
        self._server.echo(mark)
        while mark not in (found := self._monitor.next_command())["command"]:
            command, _, arguments = found["command"].partition(" ")
            is_sent = found["client_type"] != "lua" and command.lower() in SCRIPTS
            self._count += is_sent and self._name.search(arguments) is not None
        return self._count


CountScripts: TypeAlias = "Callable[[redis.Redis, str], ScriptCount]"
"""Makes a `ScriptCount` that ends with the test."""
