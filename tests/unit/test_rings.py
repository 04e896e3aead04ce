"""Which tests a command runs, what it leaves out, and what becomes of a test whose server is not there."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.paths import TESTS
from tests.support.rings import RINGS, is_quick, require, require_module, ring_of


def marked_as_quick(ring: str) -> set[str]:
    """Return the files of a ring in which a test is marked by hand."""
    return {file.stem for file in (TESTS / ring).glob("test_*.py") if "@pytest.mark.quick" in file.read_text("utf-8")}


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


def test_the_benchs_own_tests_are_in_the_same_rings() -> None:
    assert ring_of(TESTS / "bench" / "unit" / "test_something.py") == "unit"


def test_a_test_outside_of_all_rings_is_an_error() -> None:
    with pytest.raises(pytest.UsageError, match=r"test_lost\.py is in no ring"):
        ring_of(TESTS / "test_lost.py")


def test_a_test_carries_its_ring_as_marker(request: pytest.FixtureRequest) -> None:
    assert [mark.name for mark in request.node.iter_markers()] == ["unit", "quick", "timeout"]


def test_every_ring_has_a_folder() -> None:
    assert [ring for ring in RINGS if not (TESTS / ring / "__init__.py").is_file()] == []


def test_the_quick_ring_has_three_sides_of_the_contract_ring() -> None:
    sides = [
        *("memory-sync", "memory-async", "redis-sync-resp2-bytes", "redis-sync-resp2-text", "redis-sync-resp3-bytes"),
        *("redis-sync-resp3-text", "redis-async-resp2-bytes", "redis-async-resp2-text", "redis-async-resp3-bytes"),
        *("redis-async-resp3-text", "Lock-threads-memory", "Lock-asyncio-memory", "Lock-threads-redis-resp2"),
    ]
    assert [side for side in sides if is_quick("contract", f"test_a[{side}-7]")] == [
        *("memory-sync", "redis-sync-resp2-bytes", "redis-async-resp3-bytes", "redis-async-resp3-text"),
        *("Lock-threads-memory", "Lock-threads-redis-resp2"),
    ]
    assert is_quick("contract", "test_without_a_side")
    assert is_quick("unit", "test_a[memory-async]")
    assert not is_quick("integration", "test_a")


def test_the_quick_ring_has_a_process_test_of_each_kind() -> None:
    groups = {f"test_cli_{group}" for group in ("pool", "lock", "orders", "dedup", "server", "advise")}
    others = {"test_sell", "test_failover_tokens", "test_rebuild", "test_relay", "test_servers_end"}
    assert marked_as_quick("integration") == groups | others
    assert marked_as_quick("faults") == {"test_worker_points"}


@pytest.mark.full
def test_a_test_that_waits_for_seconds_is_left_to_the_full_ring(request: pytest.FixtureRequest) -> None:
    assert "quick" not in {mark.name for mark in request.node.iter_markers()}


def test_a_run_says_what_it_left_out_and_the_command_for_it() -> None:
    asked = ("-q", "--no-header", "-n0", "--collect-only", "-p", "no:cacheprovider", "-m", "quick and not long")
    files = ("integration/test_cli_advise.py", "install/test_install.py", "simulation/test_sharded.py")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *asked, *(str(TESTS / file) for file in files)],
        capture_output=True,
        text=True,
        check=True,
        cwd=TESTS.parent,
    )
    said = re.findall(r"left out, for `(.*)`: ([0-9,]+) tests \((\w+) ", run.stdout)
    assert [(command, ring) for command, _, ring in said] == [
        ("make test-full", "integration"),
        ("make test-install", "install"),
        ("make test-long", "simulation"),
    ]
