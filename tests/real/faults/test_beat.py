"""Several beats of one schedule under kills, pauses, other clocks and hand-overs: each slot is sent once."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from celery.schedules import schedule

from segmented.celery.beat.schedule import EntryState, print_of
from segmented.celery.settings import kombu_url
from segmented.keys import beat_keys
from segmented.servers import ValkeyServer
from tests.support.paths import ROOT
from tests.support.processes import Logged
from tests.support.rings import require_module
from tests.support.workers.beat_app import Setup
from tests.support.workers.selling import until

LED: Final = re.compile(r"beat: leading the schedule 'shop' with token (\d+)")


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


require_module("Celery", "celery")
EVERY_SECOND = {"tick": {"task": "shop.tick", "schedule": 1.0}}
HOURLY = {"note": {"task": "shop.note", "schedule": 3600.0}}
TTL = 2.0


@pytest.fixture
def make(tmp_path: Path, start_valkey: Callable[..., ValkeyServer]) -> Iterator[Callable[..., BeatSide]]:

    made: list[BeatSide] = []

    def new(entries: dict[str, dict[str, object]] = EVERY_SECOND, **conf: object) -> BeatSide:
        made.append(BeatSide(start_valkey(), tmp_path, entries, **{"beat_ttl": TTL, **conf}))
        return made[-1]

    yield new
    for side in made:
        side.close()


def gaps(side: BeatSide) -> set[float]:
    """Return the times between neighbouring slots, in seconds."""
    slots = sorted({datetime.fromisoformat(slot) for _, slot, _ in side.sent()})
    return {(after - before).total_seconds() for before, after in pairwise(slots)}


@pytest.mark.timeout(200)
def test_three_beats_send_each_slot_once_while_their_leaders_are_killed(make: Callable[..., BeatSide]) -> None:
    side = make(beat_delivery="at_most_once")
    beats = [side.start() for _ in range(3)]
    for left in (3, 2, 1):
        until(lambda: any(beat.tokens() for beat in beats))
        leader = max(beats, key=lambda beat: max(beat.tokens(), default=0))
        side.wait_for(3)
        if left > 1:
            leader.kill()
            beats.remove(leader)
            until(lambda: any(beat.tokens() for beat in beats))
    assert side.copies() == {}
    assert {gap % 1 for gap in gaps(side)} == {0.0}


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("point", "copies"), [("killed_before", 1), ("killed_after", 2)])
def test_a_leader_killed_while_it_sends_leaves_the_slot_to_the_next(
    make: Callable[..., BeatSide], point: str, copies: int
) -> None:
    side = make(HOURLY)
    side.make_due("note")
    side.start(fail=point).led().process.wait(100)
    assert len(side.sent()) == copies - 1
    side.start().led()
    until(lambda: len(side.sent()) == copies)
    assert len(set(side.sent())) == 1


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("delivery", "copies"), [("at_most_once", 1), ("at_least_once", 2)])
def test_a_leader_that_slept_through_its_lease_sends_no_further_slot(
    make: Callable[..., BeatSide], delivery: str, copies: int
) -> None:
    """It sleeps between claim and publication, the worst moment: the slot then has a copy, with the same id."""
    side = make(HOURLY, beat_delivery=delivery)
    side.make_due("note")
    sleeper = side.start(fail="stopped_before").led()
    until(lambda: "sending note" in sleeper.said())
    successor = side.start().led()
    until(lambda: len(side.sent()) == copies - 1)
    sleeper.process.send_signal(signal.SIGCONT)
    until(lambda: "another beat leads" in sleeper.said() or "lead was lost" in sleeper.said())
    assert len(side.sent()) == copies
    assert len(set(side.sent())) == 1
    assert len(successor.tokens()) == 1


@pytest.mark.timeout(200)
def test_sigterm_hands_over_at_once(make: Callable[..., BeatSide]) -> None:
    side = make(beat_ttl=3600)
    first = side.start().led()
    second = side.start()
    until(lambda: "Starting" in second.said())
    side.wait_for(2)
    first.end()
    second.led()
    side.wait_for(2)
    assert side.copies() == {}


@pytest.mark.timeout(200)
def test_a_leader_that_cannot_reach_the_broker_lets_another_one_send(make: Callable[..., BeatSide]) -> None:
    side = make(beat_ttl=3600)
    here, side.setup = side.setup, replace(side.setup, broker="redis://127.0.0.1:1/0")
    first = side.start().led()
    side.setup = here
    side.start()
    side.wait_for(2)
    assert "was not sent" in first.said()


@pytest.mark.timeout(200)
def test_beats_whose_clocks_differ_by_hours_send_each_slot_once_and_on_time(make: Callable[..., BeatSide]) -> None:
    side = make({"minutely": {"task": "shop.tick", "schedule": 1.0}})
    for ahead in (7200.0, -7200.0, 0.0):
        beat = side.start(clock_ahead=ahead).led()
        side.wait_for(3)
        beat.end()
    assert side.copies() == {}
    assert max(gaps(side)) < 3600


@pytest.mark.timeout(200)
def test_a_slot_that_was_sent_twice_runs_once_with_once(make: Callable[..., BeatSide]) -> None:
    side = make(HOURLY)
    side.make_due("note")
    side.start(fail="killed_after").led().process.wait(100)
    beat = side.start().led()
    until(lambda: len(side.sent()) == 2)
    beat.end()
    ((*_, message),) = set(side.sent())
    words = [sys.executable, "-m", "celery", "-A", "tests.support.workers.beat_app", "worker", "--pool", "solo"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **side.setup.environment()}
    with subprocess.Popen([*words, "--loglevel", "INFO"], cwd=ROOT, env=environment) as worker:
        until(lambda: side.broker.llen("celery") == 0 and Path(side.setup.log).exists())
        worker.terminate()
        assert worker.wait(100) == 0
    assert Path(side.setup.log).read_text("utf-8").split() == [message]
