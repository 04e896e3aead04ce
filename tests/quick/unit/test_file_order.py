"""The order in which several test workers take the files."""

from __future__ import annotations

import pytest

from tests.support.file_order import SECONDS, SECONDS_A_TEST, side_by_side
from tests.support.paths import TESTS
from tests.support.rings import RINGS


def test_rings_go_side_by_side_each_with_its_longest_file_first() -> None:
    tests = ["quick/a"] * 10 + ["quick/b"] * 30 + ["real/c"] * 20 + ["real/d"] * 20
    assert side_by_side(tests) == ["quick/b", "real/c", "real/d", "quick/a"]


def test_every_file_is_taken_once() -> None:
    files = [path.relative_to(TESTS).as_posix() for path in TESTS.glob("*/**/test_*.py")]
    assert sorted(side_by_side(files)) == sorted(files)


@pytest.mark.parametrize("file", SECONDS)
def test_a_file_that_is_named_is_there(file: str) -> None:
    assert (TESTS / file).is_file()


def test_every_ring_has_its_seconds() -> None:
    assert set(SECONDS_A_TEST) == set(RINGS)
