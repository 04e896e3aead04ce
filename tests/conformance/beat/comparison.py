"""The cases: each starts real beats on a server of its own, and counts what each of them has sent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.environments import ROOT, Environment, last_line
from segmented.celery.settings import kombu_url
from segmented.errors import SegmentedError
from segmented.servers import ValkeyServer
from tests.conformance.common import conditions
from tests.support.processes import Logged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HERE: Final = Path(__file__).parent
REDBEAT: Final = Environment("celery-redbeat", HERE)
OURS, THEIRS = "segmented", "celery-redbeat"
LEASE: Final = 3
START_SECONDS: Final = 60.0
WAIT_SECONDS: Final = 30.0
EVERY_5: Final = {"a": {"task": "a", "schedule": 5.0}, "b": {"task": "b", "schedule": 5.0}}
EVERY_1: Final = {"a": {"task": "a", "schedule": 1.0}}
SCHEDULERS: Final = {OURS: "segmented.celery.beat:Scheduler", THEIRS: "redbeat.RedBeatScheduler"}


@dataclass
class Stage:
    """A server and the beats of one contender on it."""

    contender: str
    python: Path
    stack: ExitStack
    lease: int | None = None
    """None: the scheduler's default."""
    started: int = 0

    def __post_init__(self) -> None:
        """Start the server."""
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="beat-")))
        self.server = self.stack.enter_context(ValkeyServer.start())
        self.log = self.folder / "sent"

    def start(self, entries: Mapping[str, Any], fail: str | float = "") -> subprocess.Popen[bytes]:
        """Start a beat, and wait until its scheduler is there."""
        store, broker = (self.server.url.replace("db=0", f"db={number}") for number in range(2))
        conf: dict[str, Any] = {
            "broker_url": kombu_url(broker),
            "beat_schedule": entries,
            "beat_url": store,
            "redbeat_redis_url": store,
        }
        if self.lease:
            conf |= {"beat_ttl": self.lease, "redbeat_lock_timeout": self.lease, "beat_max_loop_interval": 1}
        said = json.dumps({"conf": conf, "log": str(self.log), "fail": fail})
        words = [str(self.python), "-m", "celery", "-A", "tests.conformance.beat.app", "beat", "--pidfile="]
        words += ["--scheduler", SCHEDULERS[self.contender], "--loglevel", "DEBUG"]
        output = self.folder / f"beat{self.started}"
        self.started += 1
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "BEAT_CASE": said}
        logged = Logged(words, output, cwd=self.folder, environment=environment)
        self.stack.callback(logged.kill)
        beat = logged.process
        until(lambda: "beat: Starting" in logged.said() or beat.poll() is not None, START_SECONDS)
        if beat.poll() is not None:
            message = f"the beat of {self.contender} did not start: {last_line(logged.said(), 'no output')}"
            raise SegmentedError(message)
        return beat

    def sent(self, by: subprocess.Popen[bytes] | None = None, since: float = 0.0) -> list[str]:
        """Return the entries that were sent, by this beat or by any, since a moment."""
        lines = [line.split() for line in self.log.read_text("utf-8").splitlines()] if self.log.exists() else []
        return [name for at, pid, name in lines if float(at) >= since and (by is None or int(pid) == by.pid)]


def until(is_so: Callable[[], object], seconds: float) -> float | None:
    """Wait until something is so; return after how many seconds, or None if it never was."""
    begun = time.monotonic()
    while not is_so():
        if time.monotonic() > begun + seconds:
            return None
        time.sleep(0.05)
    return time.monotonic() - begun


def pause(stage: Stage) -> tuple[bool, str]:
    """Stop the leader in a publication, until another one has sent, and let it go on."""
    sleeper = stage.start(EVERY_5, "stop")
    until(lambda: is_stopped(sleeper), START_SECONDS)
    other = stage.start(EVERY_5)
    until(lambda: {"a", "b"} <= set(stage.sent(other)), START_SECONDS)
    sleeper.send_signal(signal.SIGCONT)
    until(lambda: stage.sent(sleeper), WAIT_SECONDS)
    time.sleep(LEASE)
    late = stage.sent(sleeper)[1:]
    ended = "" if sleeper.poll() is None else ", and ended with an error"
    return not late, f"after its pause it sent {len(late)} entries that the other had sent{ended}"


def is_stopped(beat: subprocess.Popen[bytes]) -> bool:
    """Return whether it is stopped by SIGSTOP."""
    return Path(f"/proc/{beat.pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] == "T"


def slow(stage: Stage) -> tuple[bool, str]:
    """Let a publication take three leases."""
    first = stage.start(EVERY_1, float(3 * LEASE))
    second = stage.start(EVERY_1)
    until(lambda: stage.sent(first), WAIT_SECONDS)
    senders = sum(bool(stage.sent(beat)) for beat in (first, second))
    ended = "" if first.poll() is None else ", and the first ended with an error"
    time.sleep(1)
    return senders == 1, f"{senders} beats had sent when the slow publication ended{ended}"


def deploy(stage: Stage) -> tuple[bool, str]:
    """Start a beat with the old code beside a leader with the new one."""
    new = stage.start({**EVERY_1, "b": {"task": "b", "schedule": 1.0}})
    until(lambda: "b" in stage.sent(new), START_SECONDS)
    stage.start(EVERY_1)
    since = time.time() + 1
    time.sleep(6)
    count = stage.sent(new, since).count("b")
    return count > 0, f"the leader sent its new entry {count} times in 5 s"


def killed(stage: Stage) -> tuple[bool, str]:
    """Kill the leader, with the defaults of the scheduler."""
    return _replaced(stage, signal.SIGKILL)


def ended(stage: Stage) -> tuple[bool, str]:
    """End the leader by SIGTERM, with the defaults of the scheduler."""
    return _replaced(stage, signal.SIGTERM)


def _replaced(stage: Stage, how: signal.Signals) -> tuple[bool, str]:
    leader = stage.start(EVERY_1)
    until(lambda: stage.sent(leader), START_SECONDS)
    other = stage.start(EVERY_1)
    time.sleep(1)
    leader.send_signal(how)
    leader.wait()
    after = until(lambda: stage.sent(other), WAIT_SECONDS)
    return after is not None, "nothing was sent for 30 s" if after is None else f"the other sent after {after:.1f} s"


CASES: Final[dict[str, tuple[str, int | None, Callable[[Stage], tuple[bool, str]]]]] = {
    "pause": ("a leader stopped for longer than its lease: it sends nothing that its successor has sent", LEASE, pause),
    "slow": ("a publication that takes three leases: no other beat sends meanwhile", LEASE, slow),
    "deploy": ("a beat with the old code is started: the leader goes on to send its new entry", LEASE, deploy),
    "killed": ("a killed leader, with the defaults: another one sends within 30 s", None, killed),
    "ended": ("a leader ended by SIGTERM, with the defaults: another one sends within 30 s", None, ended),
}


def compare(python_of: Callable[[Environment], Path], tell: Callable[[str], object]) -> dict[str, Any]:
    """Run every case with both schedulers; return what was counted."""
    pythons = {OURS: Path(sys.executable), THEIRS: python_of(REDBEAT)}
    rows = []
    for name, (must_hold, lease, case) in CASES.items():
        found: dict[str, Any] = {}
        for contender, python in pythons.items():
            with ExitStack() as stack:
                holds, counted = case(Stage(contender, python, stack, lease))
            found[contender] = {"holds": holds, "counted": counted}
            tell(f"{name} {contender}: {'holds' if holds else 'fails'}: {counted}")
        rows.append({"id": name, "must_hold": must_hold, "found": found})
    pins = [line for line in REDBEAT.requirements.read_text("utf-8").splitlines() if "==" in line]
    versions = [pin for pin in pins if pin.startswith(("celery", "redis"))]
    return {"conditions": conditions({"versions": versions}), "rows": rows}
