"""Simulations from many seeds, a block of them in each test: one is shorter than what a test costs beside it."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Final, cast

import pytest

from tests.long_run import in_the_long_run

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK: Final = 25


def each_seed(seeds: range) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for each seed, which it takes as `seed`; one that fails is named in a note to the failure.

    `make test-full` takes the first half of the seeds, `make test-long` the rest. Any one can be run again alone, by
    `each_seed(range(7, 8))`.
    """

    def over(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def in_a_block(block: range, **others: object) -> None:
            for seed in block:
                try:
                    test(seed=seed, **others)
                except BaseException as error:
                    error.add_note(f"seed {seed}")
                    raise

        given = inspect.signature(test)
        taken = [part.replace(name="block") if name == "seed" else part for name, part in given.parameters.items()]
        in_a_block.__signature__ = given.replace(parameters=taken)  # type: ignore[attr-defined]  # what pytest reads
        parts = blocks(seeds)
        few = (len(parts) + 1) // 2
        cases = [*parts[:few], *in_the_long_run(*parts[few:])]
        each_block = pytest.mark.parametrize("block", cases, ids=_shown)
        return cast("Callable[..., None]", each_block(in_a_block))

    return over


def blocks(seeds: range) -> list[range]:
    """Return the seeds in their order, at most 25 in each part."""
    return [seeds[first : first + BLOCK] for first in range(0, len(seeds), BLOCK)]


def _shown(block: range) -> str:
    return f"seeds {block.start} to {block[-1]}"
