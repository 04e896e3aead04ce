"""Several beats of one schedule under kills, pauses, other clocks and hand-overs: each slot is sent once."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from segmented.servers import ValkeyServer
from tests.support.paths import ROOT
from tests.support.rings import require_module
from tests.support.workers.beats import BeatSide
from tests.support.workers.selling import until

require_module("Celery", "celery")
EVERY_SECOND = {"tick": {"task": "shop.tick", "schedule": 1.0}}
HOURLY = {"note": {"task": "shop.note", "schedule": 3600.0}}
TTL = 2.0


@pytest.fixture
def make(tmp_path: Path, start_valkey: Callable[..., ValkeyServer]) -> Iterator[Callable[..., BeatSide]]:
    from tests.support.workers.beats import BeatSide  # noqa: PLC0415  # where Celery is not installed, tests are skipped

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
