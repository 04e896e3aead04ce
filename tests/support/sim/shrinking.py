"""The smallest schedule that still fails: actors, kills, lost replies, then changes of turn are left out while it does.

Greedily and by halves, after Zeller and Hildebrandt's `ddmin`; bounded in runs and in time.
"""

import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tests.support.sim.simulator import Part, Schedule, keeping_to

SECONDS_MAX: Final = 20.0
RUNS_MAX: Final = 500
PARTS: Final = ("actors", "kills", "losses", "turns")
STEPS_SHOWN: Final = 60


def smallest(run: Callable[[], object], error: Exception) -> list[str]:
    """Return lines that tell the smallest schedule found for which `run` fails as it did with `error`."""
    search = _Search(run, place_of(error))
    whole = search.tried(Schedule())
    if whole is None:
        return ["another run of the same seed did not fail so: it depends on something else"]
    found = whole
    for name in PARTS:
        found = search.without_most(name, found)
    traced = replace(_leaving_out_as(found), steps=[])
    search.tried(traced)
    steps = traced.steps or []
    counts = [f"{len(getattr(found, name).remaining())} of {getattr(whole, name).count} {name}" for name in PARTS]
    return [f"the smallest schedule found has {', '.join(counts)}; its last steps:", *steps[-STEPS_SHOWN:]]


def place_of(error: Exception) -> tuple[type[Exception], str, int | None]:
    """Return what failed and where: the line of a test or of what it uses, as the innermost frame names it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/tests/" in frame.filename]
    inner = frames[-1]
    return type(error), inner.filename, inner.lineno


class _Search:
    def __init__(self, run: Callable[[], object], place: tuple[type[Exception], str, int | None]) -> None:
        self._run, self._place = run, place
        self._runs, self._end = 0, time.monotonic() + SECONDS_MAX

    def tried(self, schedule: Schedule) -> Schedule | None:
        """Return the schedule with what happened in it, if it fails in the same place."""
        self._runs += 1
        try:
            with keeping_to(schedule):
                self._run()
        except Exception as error:  # noqa: BLE001  # whatever it fails with is compared
            return schedule if place_of(error) == self._place else None
        return None

    def without_most(self, name: str, found: Schedule) -> Schedule:
        """Leave out as many things of one kind as can be: halves first, then single ones."""
        size = len(getattr(found, name).remaining())
        while size >= 1:
            at = 0
            while at < len(remaining := getattr(found, name).remaining()):
                if self._runs >= RUNS_MAX or time.monotonic() > self._end:
                    return found
                trial = _leaving_out_as(found)
                part: Part = getattr(trial, name)
                part.left_out |= frozenset(remaining[at : at + size])
                if (smaller := self.tried(trial)) is not None and _is_smaller(smaller, found, name):
                    found = smaller
                else:
                    at += size
            size //= 2
        return found


def _leaving_out_as(schedule: Schedule) -> Schedule:
    actors, kills, losses, turns = (Part(left_out=getattr(schedule, name).left_out) for name in PARTS)
    return Schedule(actors, kills, losses, turns)


def _is_smaller(one: Schedule, other: Schedule, name: str) -> bool:
    return len(getattr(one, name).remaining()) < len(getattr(other, name).remaining())
