"""The supervisor of one torture: it is the resource and the tormentor, too.

It works in one thread and waits for no contender, so the log has one order, and a deed is done while the holder that it
is meant for is inside.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final, Self
from uuid import uuid4

import redis

from bench.torture.admin import Leftovers, Traces, called, connections_of, cut, keys_of, leftovers, living_permits
from bench.torture.assignment import Assignment
from bench.torture.desk import Desk
from bench.torture.events import Began, Ended, PermitsSeen, Tormented
from bench.torture.fleet import Fleet
from bench.torture.resource import Resource
from bench.torture.tormentor import KILL, PAUSE_AND_KILL, Tormentor
from segmented.clock import SystemClock
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.torture.events import Event
    from bench.torture.options import TortureOptions
    from bench.watch import Told

NAMES: Final = 4
TICK: Final = 0.05
START_SECONDS: Final = 120.0
"""For all processes to be there, on a machine that is busy with other things."""
STOP_SECONDS: Final = 30.0
"""For the contenders to end what they had begun; the longest of their waits is ten seconds."""


class Supervisor:
    """Everything that belongs to one torture but its servers. Used as a context manager, it leaves nothing behind."""

    def __init__(self, options: TortureOptions, urls: Sequence[str], desk: Path, note: Callable[[Event], None]) -> None:
        """Torture on the servers at `urls`; the resource is reached at `desk`, and tells `note` of everything."""
        self._options = options
        self._kind = options.what()
        self._urls = list(urls)
        self._note = note
        self._clock = SystemClock()
        prefix = f"torture-{uuid4().hex[:8]}"
        self._traces = Traces(tuple(f"{prefix}:{number}" for number in range(NAMES)), prefix)
        self._resource = Resource(note, is_fenced=self._kind.is_fenced)
        self._desk_path = desk
        self._desk = Desk(desk, self._resource, self._clock)
        self._stack = ExitStack()
        self._ends_of_pauses: dict[int, tuple[float, str]] = {}
        self._clients: list[redis.Redis] = []
        self._next_look = 0.0
        self.fleet = Fleet(self._assigned)
        self.stuck = 0
        """Processes that did not stop when they were asked to."""

    def __enter__(self) -> Self:
        """Connect to the servers."""
        self._stack.enter_context(self._desk)
        self._clients = [self._stack.enter_context(redis.Redis.from_url(url)) for url in self._urls]
        self._stack.callback(self._forget_keys)
        self._stack.enter_context(self.fleet)
        return self

    def __exit__(self, *_: object) -> None:
        """End every process, and remove what was written to a server that is not ours."""
        self._stack.close()

    def start(self, told: Told) -> None:
        """Start the contenders. Raises SegmentedError unless all are there in time."""
        wanted = {self.fleet.start(): self._options.threads for _ in range(self._options.processes)}
        until = self._clock.now() + START_SECONDS
        while (guests := self._desk.guests()) != wanted:
            told("starting", sum(guests.values()), sum(wanted.values()))
            self._desk.serve(TICK)
            self.fleet.look()
            if self.fleet.crashes:
                raise SegmentedError(self.fleet.crashes[0])
            if self._clock.now() > until:
                message = f"{sum(guests.values())} of {sum(wanted.values())} contenders came in {START_SECONDS:g} s"
                raise SegmentedError(message)
        self._note(Began(self._clock.now(), list(self._traces.names)))

    def torment(self, told: Told) -> None:
        """Serve the resource and do one deed after the other, for as long as was asked, or until a process crashes."""
        now = began = self._clock.now()
        tormentor = Tormentor(self._options.seed, ttl=self._kind.ttl, now=now)
        while now < began + self._options.seconds and not self.fleet.crashes:
            self._desk.serve(TICK)
            now = self._clock.now()
            self._end_pauses(now)
            if now >= tormentor.next_at:
                self._torment_one(tormentor, now)
            if self._options.cut_connections and now >= tormentor.next_cut_at:
                self._cut(tormentor, now)
            if now >= self._next_look:
                self._look(now)
                told("tormenting", min(int(now - began), int(self._options.seconds)), int(self._options.seconds))
        self._note(Ended(self._clock.now()))

    def stop(self) -> None:
        """Ask the contenders to end what they have begun, and wait until they are gone."""
        self.fleet.ask_to_stop()
        until = self._clock.now() + STOP_SECONDS
        while not self.fleet.reap() and self._clock.now() < until:
            self._desk.serve(TICK)
        self.stuck = len(self.fleet.running)
        for number in self.fleet.running:
            self.fleet.kill(number)

    def leftovers(self) -> Leftovers:
        """Count what is left: at the servers, and of the processes."""
        return leftovers(
            self._clients,
            self._traces,
            ttl=self._kind.ttl,
            processes=len(self.fleet.running),
            clock=self._clock,
        )

    def _assigned(self, process: int) -> Assignment:
        return Assignment(
            process=process,
            kind=self._kind.name,
            urls=[called(url, self._traces.prefix) for url in self._urls],
            desk=str(self._desk_path),
            names=list(self._traces.names),
            threads=self._options.threads,
            ttl=self._kind.ttl,
            seed=self._options.seed,
        )

    def _torment_one(self, tormentor: Tormentor, now: float) -> None:
        awake = set(self._desk.guests()) & set(self.fleet.running) - self.fleet.paused
        if len(awake) <= self._options.processes // 2:  # the others come back first
            tormentor.draw(now, inside=(), others=())
            return
        deed = tormentor.draw(now, inside=self._resource.processes_inside() & awake, others=awake)
        if deed is None:
            return
        if deed.what == KILL:
            self._replace(deed.process, now)
            return
        self._note(Tormented(now, "paused", deed.process))
        self.fleet.pause(deed.process)
        self._ends_of_pauses[deed.process] = now + deed.seconds, deed.what

    def _end_pauses(self, now: float) -> None:
        due = [process for process, (until, _) in self._ends_of_pauses.items() if now >= until]
        for process in due:
            _, what = self._ends_of_pauses.pop(process)
            if process not in self.fleet.running:
                continue
            if what == PAUSE_AND_KILL:
                self._replace(process, now)
            else:
                self._note(Tormented(now, "resumed", process))
                self.fleet.resume(process)

    def _replace(self, process: int, now: float) -> None:
        self._note(Tormented(now, "killed", process))
        self.fleet.kill(process)
        self.fleet.start()

    def _cut(self, tormentor: Tormentor, now: float) -> None:
        for client in self._clients:
            chosen = tormentor.draw_cut(now, connections_of(client, self._traces))
            cut(client, chosen)
            for _ in chosen:
                self._note(Tormented(now, "cut", 0))

    def _look(self, now: float) -> None:
        self._next_look = now + TICK
        self.fleet.look()
        if self._kind.permits > 1:
            for name in self._traces.names:
                self._note(PermitsSeen(now, name, living_permits(self._clients[0], name)))

    def _forget_keys(self) -> None:
        if self._options.url is None:  # the server goes, and its keys with it
            return
        with suppress(redis.RedisError):
            for client in self._clients:
                for key in keys_of(client, self._traces):
                    client.unlink(key)
