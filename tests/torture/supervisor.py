"""Starts the processes of a torture, kills and pauses them, and leaves none behind.

A process with the library takes a second of imports to start, and some tortures kill two a second. So all come from a
fork server: a process that has only loaded their code, and forks one in milliseconds. Each is in a session of its own,
where a terminal's Ctrl-C does not reach it, with its own environment and output, and ends with the process that started
it, also while it is paused. It gets a pipe to the supervisor, whose end asks it to stop.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final, Self

from segmented.errors import SegmentedError, StoreUnavailable
from segmented.servers.guard import parent_death_signal
from segmented.stores.redis import RedisStore

CONNECT_SECONDS: Final = 30.0
"""Maximum time for a server to be restarted, or for its replica to be promoted."""
AGAIN_SECONDS: Final = 0.02
EXIT_CRASHED: Final = 4
PRELOADED: Final = (
    *("celery", "celery.apps.worker", "celery.bin.celery", "celery.bin.worker", "celery.concurrency.thread"),
    *("celery.loaders.app", "celery.worker.consumer", "celery.worker.strategy", "kombu.transport.redis"),
    *("psycopg", "pydantic_settings", "redis.cluster", "sqlalchemy.dialects.sqlite"),
    *("sqlalchemy.dialects.postgresql.psycopg", "segmented", "segmented.orders", "segmented.stores.redis"),
    *("segmented.celery.settings", "tests.torture.locks.contenders", "tests.torture.durability.buyer"),
)
"""Modules that do not read the environment: each process gets its own."""


@dataclass(slots=True)
class _Child:
    name: str
    process: ForkServerProcess
    pipe: Connection
    output: Path
    may_end: bool


class Processes:
    """The processes of one run, by number. As a context manager, it leaves none behind."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        """Start no process yet. Each works in `folder`, with this environment instead of this process's own."""
        self._folder = folder
        self._environment = environment
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(PRELOADED))
        self._numbers = count(1)
        self._running: dict[int, _Child] = {}
        self._paused: set[int] = set()
        self.started = 0

    def __enter__(self) -> Self:
        """Return the processes."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the remaining processes, paused ones included."""
        for number in list(self._running):
            self.kill(number)

    def start(
        self,
        target: Callable[..., None],
        *arguments: object,
        name: str = "process",
        may_end: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> int:
        """Start a process that calls `target` with its pipe and `arguments`, and return its number.

        Unless it `may_end` by itself, its end is a crash before it is asked to stop. `variables` are added to its
        environment.
        """
        number = next(self._numbers)
        ours, theirs = self._context.Pipe()
        output = self._folder / f"process-{number}.output"
        environment = {**(os.environ if self._environment is None else self._environment), **(variables or {})}
        process = self._context.Process(
            target=_run, args=(target, theirs, arguments, environment, str(self._folder), str(output))
        )
        process.start()
        theirs.close()
        self._running[number] = _Child(f"{name} {number}", process, ours, output, may_end)
        self.started += 1
        return number

    @property
    def running(self) -> list[int]:
        """The numbers of the processes that are not known to have ended, paused ones included."""
        return sorted(self._running)

    @property
    def paused(self) -> set[int]:
        """The numbers of the paused processes."""
        return set(self._paused)

    def tell(self, number: int, word: object) -> None:
        """Send a word to a process. If it has ended, `crashes` says why."""
        child = self._running.get(number)
        if child is not None:
            try:
                child.pipe.send(word)
            except OSError:
                return

    def hear(self, number: int, seconds: float) -> Any:  # noqa: ANN401  # whatever it sends
        """Return the next word of a process. Raises SegmentedError if it sends none in time, or ends."""
        child = self._running[number]
        if child.pipe.poll(seconds):
            try:
                return child.pipe.recv()
            except EOFError:
                child.process.join(seconds)
        self.require_alive()
        raise SegmentedError(f"{child.name} has said nothing within {seconds:g} s")

    def pause(self, number: int) -> None:
        """Pause a process with SIGSTOP."""
        self._signal(number, signal.SIGSTOP)
        self._paused.add(number)

    def resume(self, number: int) -> None:
        """Let a paused process go on."""
        if number in self._paused:
            self._paused.discard(number)
            self._signal(number, signal.SIGCONT)

    def kill(self, number: int) -> int:
        """Kill a process with SIGKILL, so that it cannot clean up; return when, in monotonic nanoseconds."""
        child = self._running.pop(number)
        self._paused.discard(number)
        child.process.kill()  # its exit is not yet collected, so its id cannot belong to another process
        at_ns = time.monotonic_ns()
        child.process.join()
        child.process.close()
        child.pipe.close()
        return at_ns

    def crashes(self) -> list[str]:
        """Forget the processes that have ended, and return a sentence for each that may not have."""
        found = []
        for number, child in list(self._running.items()):
            code = child.process.exitcode
            if code is None:
                continue
            if code or not child.may_end:
                lines = child.output.read_text(errors="replace").split("\n") if child.output.exists() else []
                said = [line.strip() for line in lines if line.strip()][-1:] or ["no output"]
                found.append(f"{child.name} ended by itself with code {code}: {said[0]}")
            self.kill(number)
        return found

    def require_alive(self) -> None:
        """Raise SegmentedError if a process has ended that may not have."""
        for sentence in self.crashes():
            raise SegmentedError(sentence)

    def ask_to_stop(self) -> None:
        """Resume all processes, and ask them to stop; `crashes` then allows their end."""
        for number, child in self._running.items():
            self.resume(number)
            child.may_end = True
            child.pipe.close()

    def join(self, seconds: float) -> None:
        """Wait up to `seconds` for the processes to end."""
        until = time.monotonic() + seconds
        for child in self._running.values():
            child.process.join(max(0.0, until - time.monotonic()))

    def _signal(self, number: int, what: signal.Signals) -> None:
        process_id = self._running[number].process.pid
        if process_id is None:
            raise SegmentedError(f"process {number} has not started")
        os.kill(process_id, what)


def _run(  # what a process needs, once
    target: Callable[..., None],
    pipe: Connection,
    arguments: tuple[object, ...],
    environment: Mapping[str, str],
    folder: str,
    output: str,
) -> None:
    os.setsid()
    die_with_parent = parent_death_signal(signal.SIGKILL)
    if die_with_parent is not None:
        die_with_parent()
    threading.Thread(target=_wait_and_end, daemon=True).start()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    target(pipe, *arguments)


def _wait_and_end() -> None:
    starter = multiprocessing.parent_process()
    if starter is not None:
        wait([starter.sentinel])
    os._exit(1)


def wait_for_end(pipe: Connection) -> None:
    """Return when the supervisor asks this process to stop."""
    try:
        pipe.recv()
    except (EOFError, ConnectionError):  # the latter if the supervisor has not read what this process sent
        return


def crash() -> None:
    """End this process from any of its threads, with the exception being handled as its last words."""
    sys.excepthook(*sys.exc_info())
    sys.stderr.flush()
    os._exit(EXIT_CRASHED)


def connected(url: str) -> RedisStore:
    """Connect to a server that may be away now. Raises StoreUnavailable if none answers in time."""
    until = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return RedisStore.from_url(url)
        except StoreUnavailable:
            if time.monotonic() > until:
                raise
        time.sleep(AGAIN_SECONDS)
