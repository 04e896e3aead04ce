"""Which ring a test is in, and what becomes of a test whose server is not there."""

from __future__ import annotations

import pytest

from tests.support.flavour import Flavour
from tests.support.paths import TESTS
from tests.support.rings import RINGS, outermost, require, require_module, ring_of, ring_of_side, side_of_turn

MEMORY = Flavour("memory", "sync")
REDIS = Flavour("redis", "sync", 2)
REDIS_ASYNC = Flavour("redis", "async", 3)
REDIS_TEXT = Flavour("redis", "sync", 3, is_text=True)


def test_a_missing_server_is_skipped_by_name_on_a_laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^zookeeper is missing: no java$"):
        require("zookeeper", found=False, missing="no java")


def test_a_missing_server_fails_under_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"^zookeeper is missing: no java$"):
        require("zookeeper", found=False, missing="no java")


def test_a_server_that_is_there_is_used() -> None:
    require("zookeeper", found=True, missing="")
    require_module("pytest", "pytest")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="the Python package no_such_package is not installed"):
        require_module("some server", "no_such_package")


@pytest.mark.parametrize("ring", RINGS)
def test_a_test_belongs_to_the_ring_of_its_folder(ring: str) -> None:
    assert (TESTS / ring / "__init__.py").is_file()
    assert ring_of(TESTS / ring / "deeper" / "test_something.py") == ring


def test_a_test_outside_of_all_rings_is_an_error() -> None:
    with pytest.raises(pytest.UsageError, match=r"test_lost\.py is in no ring"):
        ring_of(TESTS / "test_lost.py")


def test_a_test_carries_its_ring_as_marker(request: pytest.FixtureRequest) -> None:
    assert [mark.name for mark in request.node.iter_markers()] == ["quick", "timeout"]


def test_a_contracts_side_in_memory_is_quick_and_those_on_redis_are_real() -> None:
    sides = [MEMORY, REDIS, REDIS_ASYNC, REDIS_TEXT]
    assert [ring_of_side(side, has_memory=True) for side in sides] == ["quick", "real", "real", "real"]
    assert [ring_of_side(side, has_memory=False) for side in sides[1:]] == ["quick", "real", "real"]


def test_each_test_has_one_side_of_redis_and_all_have_every_side() -> None:
    sides = [REDIS, REDIS_ASYNC, REDIS_TEXT]
    assert {side_of_turn(f"test_{number}", sides) for number in range(20)} == set(sides)
    assert side_of_turn("test_1", sides) == side_of_turn("test_1", sides)


def test_the_outermost_ring_decides() -> None:
    assert outermost({"quick", "real"}) == "real"
    assert outermost({"real", "long", "quick"}) == "long"
