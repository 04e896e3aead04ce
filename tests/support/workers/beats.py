"""Real beats of one schedule, and a judge who counts the messages of each slot."""

import json
import os
import re
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import redis
from celery.schedules import schedule

from segmented.celery.beat.schedule import EntryState, print_of
from segmented.celery.settings import kombu_url
from segmented.keys import beat_keys
from segmented.servers import ValkeyServer
from tests.support.paths import ROOT
from tests.support.processes import Logged
from tests.support.workers.beat_app import Setup
from tests.support.workers.selling import until

LED: Final = re.compile(r"beat: leading the schedule 'shop' with token (\d+)")
EVERY_SECOND: Final = {"tick": {"task": "shop.tick", "schedule": 1.0}}


class Beat(Logged):
    """One `celery beat`."""

    def tokens(self) -> list[int]:
        """Return the fencing tokens with which it has led."""
        return [int(token) for token in LED.findall(self.said())]

    def led(self) -> "Beat":
        """Wait until it has become the leader."""
        until(lambda: self.tokens() or self.process.poll() is not None)
        assert self.tokens(), self.said()
        return self


class BeatSide:
    """A broker and a schedule on a server of their own, and the beats that a test starts."""

    def __init__(self, server: ValkeyServer, folder: Path, entries: dict[str, dict[str, Any]], **conf: Any) -> None:  # noqa: ANN401  # settings of Celery
        self.folder = folder
        broker, schedule = (server.url.replace("db=0", f"db={number}") for number in range(2))
        self.setup = Setup(kombu_url(broker), schedule, str(folder / "effects"), entries, conf=conf)
        self.broker = redis.Redis.from_url(broker, decode_responses=True)
        self.schedule = redis.Redis.from_url(schedule, decode_responses=True)
        self.beats: list[Beat] = []

    def start(self, *, fail: str = "", clock_ahead: float = 0.0, **entries: dict[str, Any]) -> Beat:
        setup = replace(self.setup, fail=fail, clock_ahead=clock_ahead, entries=entries or self.setup.entries)
        words = [sys.executable, "-m", "celery", "-A", "tests.support.workers.beat_app", "beat", "--loglevel", "INFO"]
        said = self.folder / f"beat{len(self.beats)}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **setup.environment()}
        self.beats.append(Beat([*words, "--pidfile="], said, cwd=self.folder, environment=environment))
        return self.beats[-1]

    def make_due(self, name: str) -> None:
        """Let the next slot of an hourly entry come in two seconds, as if it had been sent an hour before."""
        hourly = schedule(3600)
        now_ms = int(time.time() * 1000)
        state = EntryState(now_ms - 3_600_000 + 2_000, print_of(hourly))
        self.schedule.hset(beat_keys("shop").runs, name, state.written())

    def sent(self) -> list[tuple[str, str, str]]:
        """Return the task, the slot and the id of each message, in the order of their publication."""
        found = [json.loads(text)["headers"] for text in reversed(self.broker.lrange("celery", 0, -1))]
        return [(headers["task"], headers["beat_slot"], headers["id"]) for headers in found]

    def wait_for(self, more: int) -> None:
        """Wait for that many further messages."""
        count = len(self.sent()) + more
        until(lambda: len(self.sent()) >= count)

    def copies(self) -> dict[tuple[str, str], int]:
        """Return the slots that were sent more than once, and how often. Each has one id for all its copies."""
        sent = self.sent()
        counted = Counter((task, slot) for task, slot, _ in sent)
        assert len({message for *_, message in sent}) == len(counted)
        return {slot: count for slot, count in counted.items() if count > 1}

    def close(self) -> None:
        for beat in self.beats:
            beat.kill()
        self.broker.close()
        self.schedule.close()
