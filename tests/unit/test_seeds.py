"""Blocks of seeds: every seed is run, and the one that fails is named."""

from __future__ import annotations

import inspect

import pytest

from tests.seeds import blocks, each_seed


def test_blocks_have_every_seed_once_and_in_order() -> None:
    assert blocks(range(60)) == [range(25), range(25, 50), range(50, 60)]
    assert [seed for block in blocks(range(7, 83)) for seed in block] == list(range(7, 83))


def test_a_test_is_run_for_each_seed_of_its_block_and_the_failing_one_is_named() -> None:
    seen: list[tuple[int, str]] = []

    @each_seed(range(60))
    def simulated(seed: int, kind: str) -> None:
        seen.append((seed, kind))
        assert seed != 31

    assert list(inspect.signature(simulated).parameters) == ["block", "kind"]
    simulated(block=range(25), kind="lock")
    assert seen == [(seed, "lock") for seed in range(25)]
    with pytest.raises(AssertionError) as caught:
        simulated(block=range(25, 50), kind="lock")
    assert caught.value.__notes__ == ["seed 31"]
    assert seen[-1] == (31, "lock")
