from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ring_of
from tests.rings import RINGS, require, require_module

TESTS = Path(__file__).parents[1]


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
    assert ring_of(TESTS / ring / "deeper" / "test_something.py") == ring


def test_a_test_outside_of_all_rings_is_an_error() -> None:
    with pytest.raises(pytest.UsageError, match=r"test_lost\.py is in no ring"):
        ring_of(TESTS / "test_lost.py")


def test_a_test_carries_its_ring_as_marker(request: pytest.FixtureRequest) -> None:
    assert [mark.name for mark in request.node.iter_markers()] == ["unit", "timeout"]


def test_every_ring_has_a_folder() -> None:
    assert [ring for ring in RINGS if not (TESTS / ring / "__init__.py").is_file()] == []
