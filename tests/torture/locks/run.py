"""One run of `torture locks`, from its servers to its report.

The supervisor of a run serves the resource and injects the faults. It works in one thread and waits for no contender,
so the log is totally ordered, and a fault hits its process while the chosen holder is inside.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from bench.conditions import server_conditions
from segmented.clock import SystemClock
from segmented.errors import InvalidInput, SegmentedError
from segmented.servers import ValkeyServer
from tests.torture.judge import LOCKS_MUST_BE_ZERO, check
from tests.torture.locks.contenders import be_contender
from tests.torture.locks.options import CUT, KILL, PAUSE, RESTART
from tests.torture.locks.resource import (
    Began,
    Ended,
    FaultInjected,
    PermitsSeen,
    ResourceServer,
    Restarted,
    line_of,
    read_events,
)
from tests.torture.locks.rounds import Assignment
from tests.torture.locks.servers import DURABLE, ServerRestarts, connections_of, cut, keys_of, leftovers, living_permits
from tests.torture.report import Report
from tests.torture.supervisor import Processes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from bench.results import Display, Progress
    from tests.torture.judge import LockVerdict
    from tests.torture.locks.options import Kind, TortureOptions
    from tests.torture.locks.resource import Event

LEFT: Final = {
    "immortal_keys": "keys left without a time to live",
    "held_names": "names held after the end",
    "channels": "subscriptions left",
    "connections": "connections left",
    "processes": "processes left",
    "stuck": "processes that did not stop when asked",
    "crashes": "processes that ended by themselves",
}
"""The counts of what a run leaves behind, which must be 0 too."""

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
        folder: Path,
        note: Callable[[Event], None],
        *,
        restarted: Sequence[ValkeyServer] = (),
    ) -> None:
        """Run on the servers at `urls`; the resource listens in `folder`, and passes its events to `note`.

        The servers `restarted` are killed and started again now and then.
        """
        self._options = options
        self._kind = options.what()
        self._urls = list(urls)
        self._note = note
        self._clock = SystemClock()
        prefix = f"torture-{uuid4().hex[:8]}"
        self._prefix = prefix
        self._names = [f"{prefix}:{number}" for number in range(NAMES)]
        self._socket_path = folder / "resource"
        self._server = ResourceServer(self._socket_path, note, self._clock, is_fenced=self._kind.is_fenced)
        self._stack = ExitStack()
        self._ends_of_pauses: dict[int, tuple[float, str]] = {}
        self._clients: list[redis.Redis] = []
        self._restarted = restarted
        self._next_look = 0.0
        self.processes = Processes(folder)
        self.crashes: list[str] = []
        """What processes said that ended by themselves."""
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
        wanted = {self._start_one(): contenders for _ in range(self._options.processes)}
        until = self._clock.now() + START_SECONDS
        while (client_counts := self._server.client_counts()) != wanted:
            progress("starting", sum(client_counts.values()), sum(wanted.values()))
            self._server.serve(TICK)
            self.processes.require_alive()
            if self._clock.now() > until:
                message = (
                    f"{sum(client_counts.values())} of {sum(wanted.values())} contenders came in {START_SECONDS:g} s"
                )
                raise SegmentedError(message)
        self._note(Began(self._clock.now(), self._names))

    def inject_faults(self, progress: Progress) -> None:
        """Serve the resource and inject faults, until the time is up or a process crashes."""
        now = began = self._clock.now()
        seconds, ttl = self._options.seconds, self._kind.ttl
        whats = [what for what in (KILL, PAUSE) if self._options.injects(what)]
        injector = FaultInjector(self._options.seed, ttl=ttl, now=now, whats=whats)
        with ServerRestarts(self._restarted, self._options.seed, ttl=ttl, now=now) as restarts:
            while not self.crashes and (now < began + seconds or not restarts.is_idle):
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
        while self.processes.running and self._clock.now() < until:
            self._server.serve(TICK)
            self.crashes += self.processes.crashes()
        self.stuck = len(self.processes.running)
        for number in self.processes.running:
            self.processes.kill(number)

    def leftovers(self) -> dict[str, int]:
        """Count what is left at the servers, and the processes that are left."""
        found = leftovers(self._clients, self._names, self._prefix, ttl=self._kind.ttl, clock=self._clock)
        return {**found, "processes": len(self.processes.running)}

    def _start_one(self) -> int:
        assignment = Assignment(self._options, self._urls, str(self._socket_path), self._names, self._prefix)
        number = self.processes.start(be_contender, assignment)
        self.processes.tell(number, number)
        return number

    def _inject_one(self, injector: FaultInjector, now: float) -> None:
        awake = set(self._server.client_counts()) & set(self.processes.running) - self.processes.paused
        if len(awake) <= self._options.processes // 2:  # wait until paused processes are resumed
            injector.draw(now, inside=(), others=())
            return
        fault = injector.draw(now, inside=self._server.processes_inside() & awake, others=awake)
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
        self._start_one()

    def _cut(self, injector: FaultInjector, now: float) -> None:
        for client in self._clients:
            with suppress(redis.ConnectionError):  # the server is away
                chosen = injector.draw_cut(now, connections_of(client, self._prefix))
                cut(client, chosen)
                for _ in chosen:
                    self._note(FaultInjected(now, "cut", 0))

    def _look(self, now: float) -> None:
        self._next_look = now + TICK
        self.crashes += self.processes.crashes()
        if self._kind.permits > 1:
            for name in self._names:
                with suppress(redis.ConnectionError):  # as above
                    self._note(PermitsSeen(now, name, living_permits(self._clients[0], name)))

    def _forget_keys(self) -> None:
        if self._options.url is None:  # the embedded server ends, and its keys with it
            return
        with suppress(redis.RedisError):
            for client in self._clients:
                for key in keys_of(client, self._prefix):
                    client.unlink(key)


def torture_locks(options: TortureOptions, display: Display) -> Report:
    """Test one kind of lock under faults, on embedded servers unless another is named.

    Raises InvalidInput for an unusable server, and SegmentedError if the contenders do not start.
    """
    kind = options.what()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segmented-torture-")))
        servers: list[ValkeyServer] = []
        if options.url is None:
            servers = [stack.enter_context(_server(options, folder / f"data-{n}")) for n in range(kind.servers)]
        urls = [server.url for server in servers] or [str(options.url)]
        found = conditions(options, urls[0])
        path = options.log or folder / "accesses.jsonl"
        try:
            log = stack.enter_context(path.open("w", encoding="utf-8"))
        except OSError as error:
            message = f"--log {path} cannot be written: {error.strerror}"
            raise InvalidInput(message) from error

        def note(event: Event) -> None:
            log.write(line_of(event))

        progress = stack.enter_context(display.strategy(kind.name))
        restarted = servers if options.injects(RESTART) else []
        with Supervisor(options, urls, folder, note, restarted=restarted) as supervisor:
            supervisor.start(progress)
            supervisor.inject_faults(progress)
            progress("stopping", 0, 1)
            supervisor.stop()
            left = supervisor.leftovers()
        progress("checking the log", 0, 1)
        log.flush()
        with path.open(encoding="utf-8") as lines:
            verdict = check(read_events(lines), kind)
        return report_of(
            kind,
            verdict,
            left | {"stuck": supervisor.stuck},
            found,
            crashes=supervisor.crashes,
            started=supervisor.processes.started,
        )


def _server(options: TortureOptions, data: Path) -> ValkeyServer:
    """Start a server, which keeps its data if it is to be restarted."""
    return ValkeyServer.start(data, config=DURABLE) if options.injects(RESTART) else ValkeyServer.start()


def conditions(options: TortureOptions, url: str) -> dict[str, Any]:
    """Return versions, cores and options. Raises InvalidInput for an unusable server."""
    named = {name: getattr(options, name) for name in ("kind", "seconds", "processes", "threads", "seed", "faults")}
    more = {"names": NAMES, "ttl": options.what().ttl, "embedded": options.url is None}
    return server_conditions(url) | {"options": named | more}


def report_of(
    kind: Kind,
    verdict: LockVerdict,
    left: dict[str, int],
    conditions: dict[str, Any],
    *,
    crashes: Sequence[str] = (),
    started: int = 0,
) -> Report:
    """Return the report; `left` are counts of `LEFT`."""
    left = {**dict.fromkeys(LEFT, 0), **left, "crashes": len(crashes)}
    counts = {name: int(getattr(verdict, name)) for name in LOCKS_MUST_BE_ZERO} | left
    labels = LOCKS_MUST_BE_ZERO | LEFT
    gap_bound = kind.ttl + kind.patience + round(verdict.away_max, 1)  # longer if a server was away
    broken = [f"{labels[name]}: {count:,}, must be 0" for name, count in counts.items() if count] + list(crashes)
    if not verdict.acquisitions:
        broken.append("no holder got in")
    if verdict.gap_max > gap_bound:
        broken.append(f"no holder got in for {verdict.gap_max:.1f} s; the maximum is {gap_bound:g} s")
    if kind.is_fenced and verdict.pauses and not verdict.late_refused:
        broken.append("no late write was refused: nothing is known about the fence")
    found = {one.name: getattr(verdict, one.name) for one in fields(verdict) if one.name not in labels}
    seconds = {f"{name}_s": round(value, 3) for name, value in found.items() if isinstance(value, float)}
    counted = {name: value for name, value in found.items() if not isinstance(value, float)}
    return Report(
        benchmark="torture-locks",
        broken=broken,
        must_be_zero=counts,
        figures={"kind": kind.name, "processes_started": started, **counted, **seconds, "gap_bound_s": gap_bound},
        conditions=conditions,
        heads=("", kind.name),
        rows=[
            *_rows(kind, verdict, started, gap_bound),
            *((labels[name], f"{count:,}") for name, count in counts.items()),
        ],
    )


def _rows(kind: Kind, verdict: LockVerdict, started: int, gap_bound: float) -> list[tuple[str, str]]:
    late = ("late writes refused by the fence", f"{verdict.late_refused:,}")
    if not kind.is_fenced:
        late = ("late writes that no fence could refuse", f"{verdict.late_unfenced:,}")
    missed = ", ".join(f"{reason} {count:,}" for reason, count in sorted(verdict.missed.items()))
    cancelled = ", ".join(f"{moment} {count:,}" for moment, count in sorted(verdict.cancellations.items()))
    away = f" (away up to {verdict.away_max:.2f} s)" if verdict.away_max else ""
    permits = [("most permits seen", f"{verdict.permits_seen_max} of {kind.permits}")] if kind.permits > 1 else []
    return [
        ("acquisitions", f"{verdict.acquisitions:,}"),
        ("processes started", f"{started:,}"),
        ("killed, paused, connections cut", f"{verdict.kills:,}, {verdict.pauses:,}, {verdict.cuts:,}"),
        ("tasks cancelled", cancelled or "0"),
        ("servers restarted", f"{verdict.restarts:,}{away}"),
        late,
        ("did not get in", missed or "0"),
        ("longest wait", f"{verdict.waited_max:.2f} s"),
        ("longest time without an entry", f"{verdict.gap_max:.2f} s (at most {gap_bound:g} s)"),
        *permits,
    ]
