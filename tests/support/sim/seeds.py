"""Simulations from a few seeds, new in every run.

A run has a number, printed at its end; its seeds are that number and those behind it. TEST_SEED gives it the number of
an earlier run, and TEST_SEEDS_TIMES multiplies the seeds of each test: `make explore` runs many. A seed that fails is
kept in `kept_seeds.txt`, which every later run replays first.
"""

import inspect
import os
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Final, cast

from tests.support.paths import TESTS
from tests.support.sim.shrinking import smallest
from tests.support.sim.simulator import Part, Schedule, keeping_to

SEEDS: Final = 4
"""How many a test runs unless it says how many; a slower one takes fewer."""
FURTHER: Final = 100
"""How many times as many a test runs at most, until all has happened that it is about."""
VARIABLE: Final = "TEST_SEED"
TIMES: Final = "TEST_SEEDS_TIMES"
KEPT: Final = TESTS / "kept_seeds.txt"
"""Lines of a test's file and name, without parameters, and a seed."""
RUNS: Final = 2**31


def seed_of_run() -> int:
    """Return the number of this run, in the environment for the workers that this process starts."""
    return int(os.environ.setdefault(VARIABLE, str(secrets.randbelow(RUNS))))


def each_seed(
    seeds: int = SEEDS, *, meets: Sequence[str] = ()
) -> Callable[[Callable[..., Counter[str] | None]], Callable[..., None]]:
    """Run a test with `seeds` values of its argument `seed`, after those that were kept for it.

    `meets` names what the worlds must have met together: parts of a `Schedule`, such as kills, or keys of the counters
    that the test returns. While one is missing the test runs further seeds; in the end it fails, as it shows nothing.
    A note to a failure has the command that replays it, and the smallest schedule found that fails in the same place.
    """

    def over(test: Callable[..., Counter[str] | None]) -> Callable[..., None]:
        @wraps(test)
        def with_seeds(**others: object) -> None:
            kept, first = kept_seeds(test), seed_of_run()
            count = seeds * int(os.environ.get(TIMES, "1"))
            met, schedule, missed = Counter[str](), Schedule(), list(meets)
            for number, seed in enumerate([*kept, *range(first, first + FURTHER * count)]):
                if number >= len(kept) + count and not missed:
                    break
                run = _Run(test, seed, others)
                try:
                    with keeping_to(schedule):
                        met += run() or Counter()
                except Exception as error:
                    keep(test, seed)
                    error.add_note(run.account(error))
                    raise
                missed = [one for one in meets if not _times(one, schedule, met)]
            assert not missed, f"{name_of(test)} shows nothing: no {' and no '.join(missed)} in {FURTHER * count} runs"

        given = inspect.signature(test)
        taken = [part for name, part in given.parameters.items() if name != "seed"]
        with_seeds.__signature__ = given.replace(parameters=taken)  # type: ignore[attr-defined]  # what pytest reads
        return cast("Callable[..., None]", with_seeds)

    return over


def _times(what: str, schedule: Schedule, met: Counter[str]) -> int:
    return cast("Part", getattr(schedule, what)).count if hasattr(schedule, what) else met[what]


def kept_seeds(test: Callable[..., object]) -> list[int]:
    """Return the seeds that a test has failed with before, the oldest first."""
    lines = KEPT.read_text(encoding="utf-8").splitlines() if KEPT.exists() else []
    return [int(line.split()[1]) for line in lines if line.split()[:1] == [name_of(test)]]


def keep(test: Callable[..., object], seed: int) -> None:
    """Keep a seed that failed, once."""
    if seed not in kept_seeds(test):
        with KEPT.open("a", encoding="utf-8") as file:
            file.write(f"{name_of(test)} {seed}\n")


def name_of(test: Callable[..., object]) -> str:
    """Name a test by its module and name."""
    return f"{test.__module__}::{test.__name__}"


class _Run:
    """A test with a seed and what else it takes; in a run whose number is the seed, it is first."""

    def __init__(self, test: Callable[..., Counter[str] | None], seed: int, others: dict[str, object]) -> None:
        self._test, self._seed, self._others = test, seed, others

    def __call__(self) -> Counter[str] | None:
        return self._test(seed=self._seed, **self._others)

    def account(self, error: Exception) -> str:
        """Say how to replay it, and what the smallest schedule is that fails so."""
        case = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        command = f"{VARIABLE}={self._seed} .venv/bin/python -m pytest '{case}'"
        return "\n".join(
            [f"seed {self._seed}, kept in tests/{KEPT.name}; its replay:", command, *smallest(self, error)]
        )
