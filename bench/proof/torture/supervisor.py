"""The supervisor of one run: it serves the resource and injects the faults.

It works in one thread and waits for no contender, so the log is totally ordered, and a fault hits its process while the
chosen holder is inside.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, Self
from uuid import uuid4

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from bench.proof.torture.admin import (
    Leftovers,
    RunNames,
    called,
    connections_of,
    cut,
    keys_of,
    leftovers,
    living_permits,
)
from bench.proof.torture.events import Began, Ended, FaultInjected, PermitsSeen, Restarted
from bench.proof.torture.options import CUT, KILL, PAUSE
from bench.proof.torture.processes import Assignment, ContenderProcesses
from bench.proof.torture.resource import Resource, ResourceServer
from bench.proof.torture.restarts import ServerRestarts
from segmented.clock import SystemClock
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from bench.display import Progress
    from bench.proof.torture.events import Event
    from bench.proof.torture.options import TortureOptions
    from segmented.servers import ValkeyServer

GAP: Final = 0.5
"""Mean seconds between two faults."""
CUT_GAP: Final = 0.8
HOLDERS: Final = 0.8
"""Share of faults that hit a process with a holder inside, if there is one. The rest hit any process."""
PAUSE_AND_KILL: Final = "pause_and_kill"
WEIGHTS: Final = {KILL: 4, PAUSE: 5, PAUSE_AND_KILL: 1}
NAMES: Final = 4
TICK: Final = 0.05
START_SECONDS: Final = 120.0
"""Seconds for all processes to start, on a busy machine."""
STOP_SECONDS: Final = 30.0
"""Seconds for the contenders to finish; their longest wait is ten seconds."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one process, and for how long it is paused."""

    what: str
    process: int
    seconds: float


class FaultInjector:
    """Draws faults."""

    def __init__(self, seed: int, *, ttl: float, now: float, whats: Collection[str] = (KILL, PAUSE)) -> None:
        """Begin soon after `now` with the faults `whats`; pauses are longer than `ttl`."""
        both = {PAUSE_AND_KILL} if {KILL, PAUSE} <= set(whats) else set()
        self._weights = {what: weight for what, weight in WEIGHTS.items() if what in {*whats, *both}}
        self._random = Random(f"tormentor/{seed}")  # unchanged, so that old seeds draw the same faults
        self._ttl = ttl
        self.next_at = now + self._gap(GAP)
        """When the next fault is due."""
        self.next_cut_at = now + self._gap(CUT_GAP)
        """When connections are due to be cut."""

    def draw(self, now: float, *, inside: Collection[int], others: Collection[int]) -> Fault | None:
        """Draw a fault for one of the given processes, or None if there are none."""
        self.next_at = now + self._gap(GAP)
        everybody = sorted({*inside, *others})
        if not everybody or not self._weights:
            return None
        wants_holder = bool(inside) and self._random.random() < HOLDERS
        process = self._random.choice(sorted(inside) if wants_holder else everybody)
        (what,) = self._random.choices(list(self._weights), list(self._weights.values()))
        return Fault(what, process, 0.0 if what == KILL else self._ttl * self._random.uniform(1.3, 3.0))

    def draw_cut(self, now: float, connections: Collection[int]) -> list[int]:
        """Draw the connections to cut now."""
        self.next_cut_at = now + self._gap(CUT_GAP)
        return self._random.sample(sorted(connections), min(len(connections), self._random.randint(1, 6)))

    def _gap(self, mean: float) -> float:
        return self._random.uniform(0.2, 1.8) * mean


class Supervisor:
    """Everything of one run but its servers. As a context manager, it leaves nothing behind."""

    def __init__(
        self,
        options: TortureOptions,
        urls: Sequence[str],
        socket_path: Path,
        note: Callable[[Event], None],
        *,
        restarted: Sequence[ValkeyServer] = (),
    ) -> None:
        """Run on the servers at `urls`; the resource listens at `socket_path`, and passes its events to `note`.

        The servers `restarted` are killed and started again now and then.
        """
        self._options = options
        self._kind = options.what()
        self._urls = list(urls)
        self._note = note
        self._clock = SystemClock()
        prefix = f"torture-{uuid4().hex[:8]}"
        self._run_names = RunNames(tuple(f"{prefix}:{number}" for number in range(NAMES)), prefix)
        self._resource = Resource(note, is_fenced=self._kind.is_fenced)
        self._socket_path = socket_path
        self._server = ResourceServer(socket_path, self._resource, self._clock)
        self._stack = ExitStack()
        self._ends_of_pauses: dict[int, tuple[float, str]] = {}
        self._clients: list[redis.Redis] = []
        self._restarted = restarted
        self._next_look = 0.0
        self.processes = ContenderProcesses(self._assigned)
        self.stuck = 0
        """Processes that did not stop when asked."""

    def __enter__(self) -> Self:
        """Connect to the servers."""
        self._stack.enter_context(self._server)
        once = Retry(NoBackoff(), 1)  # to connect again; a server that is away must not delay the resource
        self._clients = [self._stack.enter_context(redis.Redis.from_url(url, retry=once)) for url in self._urls]
        self._stack.callback(self._forget_keys)
        self._stack.enter_context(self.processes)
        return self

    def __exit__(self, *_: object) -> None:
        """End every process, and remove the run's keys from a server that the caller named."""
        self._stack.close()

    def start(self, progress: Progress) -> None:
        """Start the contenders. Raises SegmentedError if some have not started in time."""
        contenders = self._options.threads + self._options.tasks
        wanted = {self.processes.start(): contenders for _ in range(self._options.processes)}
        until = self._clock.now() + START_SECONDS
        while (client_counts := self._server.client_counts()) != wanted:
            progress("starting", sum(client_counts.values()), sum(wanted.values()))
            self._server.serve(TICK)
            self.processes.look()
            if self.processes.crashes:
                raise SegmentedError(self.processes.crashes[0])
            if self._clock.now() > until:
                message = (
                    f"{sum(client_counts.values())} of {sum(wanted.values())} contenders came in {START_SECONDS:g} s"
                )
                raise SegmentedError(message)
        self._note(Began(self._clock.now(), list(self._run_names.names)))

    def inject_faults(self, progress: Progress) -> None:
        """Serve the resource and inject faults, until the time is up or a process crashes."""
        now = began = self._clock.now()
        seconds, ttl = self._options.seconds, self._kind.ttl
        whats = [what for what in (KILL, PAUSE) if self._options.injects(what)]
        injector = FaultInjector(self._options.seed, ttl=ttl, now=now, whats=whats)
        with ServerRestarts(self._restarted, self._options.seed, ttl=ttl, now=now) as restarts:
            while not self.processes.crashes and (now < began + seconds or not restarts.is_idle):
                self._server.serve(TICK)
                now = self._clock.now()
                is_over = now >= began + seconds
                away = restarts.step(now, may_kill=not is_over)
                if away is not None:
                    self._note(Restarted(now, away))
                self._end_pauses(now)
                if now >= injector.next_at and not is_over:
                    self._inject_one(injector, now)
                if self._options.injects(CUT) and now >= injector.next_cut_at and not is_over:
                    self._cut(injector, now)
                if now >= self._next_look:
                    self._look(now)
                    progress("injecting faults", min(int(now - began), int(seconds)), int(seconds))
        self._note(Ended(self._clock.now()))

    def stop(self) -> None:
        """Ask the contenders to finish, and wait until they have ended."""
        self.processes.ask_to_stop()
        until = self._clock.now() + STOP_SECONDS
        while not self.processes.reap() and self._clock.now() < until:
            self._server.serve(TICK)
        self.stuck = len(self.processes.running)
        for number in self.processes.running:
            self.processes.kill(number)

    def leftovers(self) -> Leftovers:
        """Count what is left at the servers, and the processes that are left."""
        return leftovers(
            self._clients,
            self._run_names,
            ttl=self._kind.ttl,
            processes=len(self.processes.running),
            clock=self._clock,
        )

    def _assigned(self, process: int) -> Assignment:
        return Assignment(
            process=process,
            kind=self._kind.name,
            urls=[called(url, self._run_names.client_name(process)) for url in self._urls],
            socket_path=str(self._socket_path),
            names=list(self._run_names.names),
            threads=self._options.threads,
            ttl=self._kind.ttl,
            seed=self._options.seed,
            client_name=self._run_names.client_name(process),
            tasks=self._options.tasks,
        )

    def _inject_one(self, injector: FaultInjector, now: float) -> None:
        awake = set(self._server.client_counts()) & set(self.processes.running) - self.processes.paused
        if len(awake) <= self._options.processes // 2:  # wait until paused processes are resumed
            injector.draw(now, inside=(), others=())
            return
        fault = injector.draw(now, inside=self._resource.processes_inside() & awake, others=awake)
        if fault is None:
            return
        if fault.what == KILL:
            self._replace(fault.process, now)
            return
        self._note(FaultInjected(now, "paused", fault.process))
        self.processes.pause(fault.process)
        self._ends_of_pauses[fault.process] = now + fault.seconds, fault.what

    def _end_pauses(self, now: float) -> None:
        due = [process for process, (until, _) in self._ends_of_pauses.items() if now >= until]
        for process in due:
            _, what = self._ends_of_pauses.pop(process)
            if process not in self.processes.running:
                continue
            if what == PAUSE_AND_KILL:
                self._replace(process, now)
            else:
                self._note(FaultInjected(now, "resumed", process))
                self.processes.resume(process)

    def _replace(self, process: int, now: float) -> None:
        self._note(FaultInjected(now, "killed", process))
        self.processes.kill(process)
        self.processes.start()

    def _cut(self, injector: FaultInjector, now: float) -> None:
        for client in self._clients:
            with suppress(redis.ConnectionError):  # the server is away
                chosen = injector.draw_cut(now, connections_of(client, self._run_names.prefix))
                cut(client, chosen)
                for _ in chosen:
                    self._note(FaultInjected(now, "cut", 0))

    def _look(self, now: float) -> None:
        self._next_look = now + TICK
        self.processes.look()
        if self._kind.permits > 1:
            for name in self._run_names.names:
                with suppress(redis.ConnectionError):  # as above
                    self._note(PermitsSeen(now, name, living_permits(self._clients[0], name)))

    def _forget_keys(self) -> None:
        if self._options.url is None:  # the embedded server ends, and its keys with it
            return
        with suppress(redis.RedisError):
            for client in self._clients:
                for key in keys_of(client, self._run_names):
                    client.unlink(key)
