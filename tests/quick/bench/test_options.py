from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bench.cli.bench import whole
from bench.conditions import Servers
from bench.demo.measure import DemoOptions, cell_of, lone_assignment
from bench.demo.results import Results
from bench.engine.cell import Cell, RunAssignment
from bench.results import check_writable, write
from bench.strategies import STRATEGIES
from segmented.errors import InvalidInput
from tests.support.bench.records import demo_run

if TYPE_CHECKING:
    from pathlib import Path

ASSIGNMENT = RunAssignment(
    cell=Cell(strategy="lock-free", segments=4, buyers=16, section="commit", hold_ms=5),
    url="redis://localhost",
    meter_url="redis://localhost",
    database="sqlite:///orders",
    stock=20,
    seconds=2.0,
    warm_up=0.2,
)


def test_what_cannot_be_measured_is_one_sentence() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"hold_ms": float("nan")}, "--hold nan must be between 0 and 2,000 ms"),
        ({"hold_ms": 2_001.0}, "--hold 2001 must be between 0 and 2,000 ms"),
        ({"buyers": 0}, "--buyers 0 must be between 1 and 1,000"),
        ({"segments": 4_097}, "--segments 4097 must be between 1 and 4,096"),
        ({"seconds": 0.5}, "--seconds 0.5 must be between 1 and 600 s"),
        (
            {"seconds": 1.0, "hold_ms": 51.0},
            "--hold 51 leaves one lock fewer than 20 orders in --seconds 1: measure longer, or hold for less",
        ),
        (
            {"seconds": 60.0, "hold_ms": 500.0, "buyers": 300},
            "--buyers 300 in line for one lock with --hold 500 would wait 150 s; at most 120 s can be measured",
        ),
    ]
    for options, sentence in cases:
        with pytest.raises(InvalidInput) as caught:
            DemoOptions(**options)
        assert str(caught.value) == sentence


def test_without_a_name_the_benchmark_is_granularity() -> None:
    known = ["granularity", "locks"]
    assert whole([], known) == ["granularity"]
    assert whole(["--quick"], known) == ["granularity", "--quick"]
    assert whole(["locks", "--quick"], known) == ["locks", "--quick"]
    assert whole(["--help"], known) == ["--help"]
    with pytest.raises(InvalidInput, match=r"^unknown benchmark 'speed'; known are: granularity, locks$"):
        whole(["speed"], known)


def test_the_bound_comes_from_a_lone_buyer_of_the_same_cell_for_any_number_of_buyers() -> None:
    cell = cell_of(DemoOptions(hold_ms=200, buyers=16, segments=4, seconds=10), "segment-locks")
    alone = lone_assignment(cell, Servers("redis://localhost", "sqlite:///orders", {}, {}))
    assert alone.cell == cell.model_copy(update={"buyers": 1})
    assert (alone.is_calibration, alone.seconds, alone.warm_up, alone.database) == (True, 2.0, 0.0, "sqlite:///orders")


def test_every_buyer_has_a_connection_unless_the_url_says_otherwise() -> None:
    for url, pooled in (
        ("redis://localhost:1/2", "redis://localhost:1/2?max_connections=28"),
        ("unix:///run/valkey.sock?db=0", "unix:///run/valkey.sock?db=0&max_connections=28"),
        ("redis://localhost?max_connections=9", "redis://localhost?max_connections=9"),
    ):
        assert ASSIGNMENT.model_copy(update={"url": url}).pooled_url == pooled


def test_the_demos_strategies_are_there_and_one_of_all_is_the_control() -> None:
    assert {"no-lock", "global-lock", "segment-locks", "lock-free"} <= set(STRATEGIES)
    assert [name for name, strategy in STRATEGIES.items() if strategy.is_control] == ["no-lock"]


def test_results_are_written_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    results = Results("demo", (demo_run(),), {"cores": 2}, {"ratio": 18.7}, ["a remark"])
    write(results, file)
    assert json.loads(file.read_text()) == {
        "benchmark": "demo",
        "runs": [demo_run().run.model_dump(mode="json", by_alias=True)],
        "conditions": {"cores": 2},
        "findings": {"ratio": 18.7},
        "remarks": ["a remark"],
    }


def test_a_file_that_cannot_be_written_is_refused_beforehand(tmp_path: Path) -> None:
    check_writable(None)
    check_writable(tmp_path / "results.json")
    with pytest.raises(InvalidInput, match=r"^--json \S+ is a folder, not a file$"):
        check_writable(tmp_path)
    with pytest.raises(InvalidInput, match=r"^--json \S+: there is no folder \S+$"):
        check_writable(tmp_path / "missing" / "results.json")
