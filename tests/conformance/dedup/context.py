"""The context of a case, with private servers and a contender's processes, and its finding: whether it held."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar, cast

import redis

from bench.clusters import free_port
from segmented.errors import SegmentedError
from segmented.models.ids import counted
from segmented.servers import ValkeyServer
from tests.conformance.dedup.processes import START_SECONDS, Child, Publisher, Worker
from tests.conformance.dedup.settings import CHARGE, Settings, entries

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tests.conformance.dedup.settings import Entry

ChildT = TypeVar("ChildT", bound=Child)

QUEUE: Final = "celery"
"""The broker's list of waiting messages."""
UNACKED_INDEX: Final = "unacked_index"
LOOK_SECONDS: Final = 0.02
STILL_SECONDS: Final = 1.5
"""Seconds without waiting or unacknowledged messages after which nothing more will happen."""
REPEAT_SECONDS: Final = 2.0
ORDER: Final = "order-1"
FOREIGN: Final = "tests.conformance.dedup.adapters.foreign"


class Overdue(Exception):
    """The case did not end in time."""


class BenchContext:
    """Servers, processes and journal of one case on one contender."""

    def __init__(self, python: Path, adapter: str, *, seconds_max: float) -> None:
        """Start the servers: one for messages and results, one for claims."""
        self._python = python
        self._adapter = adapter
        self._seconds_max = seconds_max
        self._ends = time.monotonic() + seconds_max
        self._children = 0
        self._stack = ExitStack()
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segmented-dedup-")))
            _, broker = _server(stack)
            self.store, store = _server(stack)
            self.broker: redis.Redis = stack.enter_context(redis.Redis.from_url(broker, decode_responses=True))
            self._claims: redis.Redis = stack.enter_context(redis.Redis.from_url(store))
            self._stack = stack.pop_all()
        self.base = Settings(
            broker=f"{broker}/0",
            results=f"{broker}/1",
            store=f"{store}/0",
            journal=str(self.folder / "journal"),
            owner_pid=os.getpid(),
        )

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End every process and server."""
        self._stack.close()

    def worker(self, settings: Settings, *, pool: str = "solo") -> Worker:
        """Start a worker and wait until it takes messages. Raises SegmentedError if it does not start."""
        ready = len(self.seen("ready"))
        worker = self._keep(Worker(self._python, self._adapter, settings, self._log("worker"), pool=pool))
        if not self.until(lambda: len(self.seen("ready")) > ready or worker.process.poll() is not None, START_SECONDS):
            message = f"a worker did not start: {worker.last_words()}"
            raise SegmentedError(message)
        if worker.process.poll() is not None:
            message = f"a worker ended at its start: {worker.last_words()}"
            raise SegmentedError(message)
        return worker

    def publisher(self, settings: Settings | None = None) -> Publisher:
        """Start a publisher."""
        return self._keep(Publisher(self._python, self._adapter, settings or self.base, self._log("publisher")))

    def foreign_publisher(self) -> Publisher:
        """Start a publisher that has neither the tasks' code nor the contender's library."""
        return self._keep(Publisher(self._python, FOREIGN, self.base, self._log("foreign")))

    def until(self, happened: Callable[[], bool], seconds: float) -> bool:
        """Wait, and return whether it happened within `seconds`. Raises Overdue when the time of the case is over."""
        ends = time.monotonic() + seconds
        while not happened():
            now = time.monotonic()
            if now >= self._ends:
                message = f"it had not ended after {self._seconds_max:g} s"
                raise Overdue(message)
            if now >= ends:
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def pause(self, seconds: float) -> None:
        """Wait, in a case that needs time to pass."""
        self.until(lambda: False, seconds)

    def settle(self, seconds: float = 20.0, *, unless: Callable[[], bool] = lambda: False) -> None:
        """Wait until no message is waiting, unacknowledged or due for a retry, or until `unless` is true."""
        still_since = time.monotonic()

        def is_still() -> bool:
            nonlocal still_since
            if self.messages() or self.unacked():
                still_since = time.monotonic()
            return unless() or time.monotonic() - still_since >= STILL_SECONDS

        self.until(is_still, seconds)

    def seen(self, event: str, key: str | None = None) -> list[Entry]:
        """Return the journal's entries of an event, for one key or all."""
        found = [entry for entry in entries(Path(self.base.journal)) if entry.event == event]
        return [entry for entry in found if key is None or entry.key == key]

    def effects(self, key: str = ORDER) -> int:
        """Count the effects of a key."""
        return len(self.seen("effect", key))

    def messages(self) -> int:
        """Return the number of messages waiting at the broker."""
        return self.broker.llen(QUEUE)

    def unacked(self) -> set[str]:
        """Return the tags of unacknowledged messages, also of dead workers."""
        return set(cast("list[str]", self.broker.zrange(UNACKED_INDEX, 0, -1)))

    def redeliver(self, tags: Collection[str]) -> None:
        """Age these messages to the visibility timeout, so that a worker's next sweep delivers them again."""
        for tag in tags:
            self.broker.zadd(UNACKED_INDEX, {tag: 1}, xx=True)

    def repeat_until_effect(self, publisher: Publisher, seconds: float) -> tuple[int, float | None]:
        """Submit the order until it has an effect; return the submissions, and the seconds (None: not in time)."""
        began, submissions, before = time.monotonic(), 0, self.effects()
        while (passed := time.monotonic() - began) < seconds:
            publisher.submit(CHARGE, ORDER, 1)
            submissions += 1
            if self.until(lambda: self.effects() > before, min(REPEAT_SECONDS, seconds - passed)):
                return submissions, time.monotonic() - began
        return submissions, None

    def claim_left(self) -> str:
        """Return how long the longest claim still lives, as text."""
        lives = [self._claims.ttl(key) for key in cast("list[bytes]", self._claims.keys("*"))]
        if not lives:
            return "no key is left"
        return "its key has no end" if -1 in lives else f"its key has {max(lives)} s left"

    def stop_store(self) -> None:
        """Stop the server of the claims; the broker stays."""
        self.store.stop()

    def _keep(self, child: ChildT) -> ChildT:
        self._stack.enter_context(child)
        return child

    def _log(self, name: str) -> Path:
        self._children += 1
        return self.folder / f"{name}-{self._children}.log"


def _server(stack: ExitStack) -> tuple[ValkeyServer, str]:
    """Start a server on a port, and return it with its URL. Every account can reach the port, so it has a password."""
    port, password = free_port(), secrets.token_hex(24)
    server = ValkeyServer.start(config={"port": str(port), "bind": "127.0.0.1", "requirepass": password})
    stack.callback(server.stop)
    return server, f"redis://:{password}@127.0.0.1:{port}"


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of a case."""

    held: bool
    evidence: str
    """The evidence in a few words, without a full stop."""


def at_once(entries: Sequence[Entry]) -> int:
    """Return the maximum number of concurrent runs. A run that never ended counts to the end."""
    moments = sorted(
        (entry.at, {"began": 1, "ended": -1, "retry": -1}[entry.event])
        for entry in entries
        if entry.event in {"began", "ended", "retry"}
    )
    under_way = most = 0
    for _, change in moments:
        under_way += change
        most = max(most, under_way)
    return most


def one_effect(context: BenchContext, more: str = "") -> Finding:
    """Return whether the order had exactly one effect, with the evidence."""
    effects = context.effects()
    evidence = f"{counted(effects, 'effect')} of 1 order"
    return Finding(effects == 1, f"{evidence}, {more}" if more else evidence)


def one_run(context: BenchContext) -> Finding:
    """Return whether the order ran exactly once and had its effect, with the evidence."""
    runs = context.seen("began", ORDER)
    most = at_once([entry for entry in entries(Path(context.base.journal)) if entry.key == ORDER])
    evidence = f"{counted(len(runs), 'run')} of 1 order" + (f", {most} at the same time" if most > 1 else "")
    return Finding(len(runs) == 1 and context.effects() == 1, evidence)
