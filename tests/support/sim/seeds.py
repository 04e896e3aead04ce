"""Simulations from many seeds, new in every run, a block of them in each test: one is shorter than what a test costs.

A run has a number, printed at its beginning; its seeds are that number and those behind it. TEST_SEED gives
it the number of an earlier one. A seed that fails is kept in `kept_seeds.txt`, which every later run replays first.
"""

from __future__ import annotations

import inspect
import os
import re
import secrets
from functools import wraps
from typing import TYPE_CHECKING, Final, cast

import pytest

from segmented.testing.simulator import Schedule, keeping_to
from tests.support.long_run import in_the_long_run
from tests.support.paths import TESTS
from tests.support.sim.shrinking import smallest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BLOCK: Final = 25
VARIABLE: Final = "TEST_SEED"
KEPT: Final = TESTS / "kept_seeds.txt"
"""Lines of a test's file and name, without parameters, and a seed."""
RUNS: Final = 2**31


def seed_of_run() -> int:
    """Return the number of this run, in the environment for the workers that this process starts."""
    return int(os.environ.setdefault(VARIABLE, str(secrets.randbelow(RUNS))))


def each_seed(seeds: range, *, meets: Sequence[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for as many seeds as the range has, which it takes as `seed`, after those that were kept for it.

    `make test-full` takes the first half of the range, `make test-long` the rest. A note to a failure has the command
    that replays it, and the smallest schedule found that fails in the same place.

    `meets` names parts of a `Schedule`, such as kills, that happen in the worlds of each block: where none does, the
    test would show nothing, and fails.
    """

    def over(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def in_a_block(block: range, **others: object) -> None:
            kept, met = kept_seeds(test) if block.start == 0 else [], Schedule()
            for seed in [*kept, *(seed_of_run() + offset for offset in block)]:
                run = _Run(test, seed, others, _shown(parts[0]))
                try:
                    with keeping_to(met):
                        run()
                except Exception as error:
                    keep(test, seed)
                    error.add_note(run.account(error))
                    raise
            missed = [part for part in meets if not getattr(met, part).count]
            assert not missed, f"{name_of(test)} shows nothing: no {' and no '.join(missed)} in {len(block)} runs"

        parts = blocks(seeds)
        given = inspect.signature(test)
        taken = [part.replace(name="block") if name == "seed" else part for name, part in given.parameters.items()]
        in_a_block.__signature__ = given.replace(parameters=taken)  # type: ignore[attr-defined]  # what pytest reads
        few = (len(parts) + 1) // 2
        cases = [*parts[:few], *in_the_long_run(*parts[few:])]
        each_block = pytest.mark.parametrize("block", cases, ids=_shown)
        return cast("Callable[..., None]", each_block(in_a_block))

    return over


def blocks(seeds: range) -> list[range]:
    """Return the seeds in their order, at most 25 in each part."""
    return [seeds[first : first + BLOCK] for first in range(0, len(seeds), BLOCK)]


def kept_seeds(test: Callable[..., None]) -> list[int]:
    """Return the seeds that a test has failed with before, the oldest first."""
    lines = KEPT.read_text(encoding="utf-8").splitlines() if KEPT.exists() else []
    return [int(line.split()[1]) for line in lines if line.split()[:1] == [name_of(test)]]


def keep(test: Callable[..., None], seed: int) -> None:
    """Keep a seed that failed, once."""
    if seed not in kept_seeds(test):
        with KEPT.open("a", encoding="utf-8") as file:
            file.write(f"{name_of(test)} {seed}\n")


def name_of(test: Callable[..., None]) -> str:
    """Name a test by its module and name."""
    return f"{test.__module__}::{test.__name__}"


class _Run:
    """A test with a seed and what else it takes; in the first block of a run that begins with the seed, it is first."""

    def __init__(self, test: Callable[..., None], seed: int, others: dict[str, object], first_block: str) -> None:
        self._test, self._seed, self._others, self._first_block = test, seed, others, first_block

    def __call__(self) -> None:
        self._test(seed=self._seed, **self._others)

    def account(self, error: Exception) -> str:
        """Say how to replay it, and what the smallest schedule is that fails so."""
        case = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        case = re.sub(r"seeds \d+ to \d+", self._first_block, case)
        command = f"{VARIABLE}={self._seed} .venv/bin/python -m pytest '{case}'"
        return "\n".join(
            [f"seed {self._seed}, kept in tests/{KEPT.name}; its replay:", command, *smallest(self, error)]
        )


def _shown(block: range) -> str:
    return f"seeds {block.start} to {block[-1]}"
