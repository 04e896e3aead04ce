"""Plans, options and the parts of a load."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from bench.conditions import Servers
from bench.demo import STORIES, DemoOptions, Results, cell_of, lone_assignment
from bench.engine.cell import Cell, RunAssignment
from bench.engine.plan import PLAN_FILE, Estimate, grid_of, read_plan, turns_of
from bench.results import write
from bench.strategies import STRATEGIES
from segmented.errors import InvalidInput
from tests.support.bench.plans import small_plan, written
from tests.support.bench.records import demo_run
from tests.support.command_line import ran

K4 = Cell(strategy="segment-locks", segments=4, section="sleep", hold_ms=5.0, buyers=8)


def refusal(file: Path) -> str:
    """Return what is said of the plan, without the file that every sentence begins with."""
    with pytest.raises(InvalidInput) as caught:
        grid_of(read_plan(file))
    said = str(caught.value)
    assert said.startswith(f"{file}")
    return said.removeprefix(f"{file}").removeprefix(": ")


MISTAKES: Final[list[tuple[str, str, str]]] = [
    ("stop =", "stopp =", "stopp: unknown key; did you mean 'stop'?"),
    ('question = "What do u', 'qestion = "What do u', "sweeps.load.qestion: unknown key; did you mean 'question'?"),
    ("seed = 7\n", "", "seed: is missing"),
    ("rounds = 2", "rounds = 0", "rounds: Input should be greater than or equal to 1, not 0"),
    (
        'base = { strategy = "segment-locks", section',
        'base = { strategy = "segment-lock", section',
        "sweeps.k.strategy: there is no strategy 'segment-lock'; did you mean 'segment-locks'?",
    ),
    ("segments = [1, 4]", 'segments = ["4"]', "sweeps.k.segments: Input should be a valid integer, not '4'"),
    (
        '{ section = "none" }',
        '{ section = "sleep", hold_ms = 2500.0 }',
        "sweeps.hold.hold_ms: Input should be less than or equal to 2000, not 2500.0",
    ),
    ('sweep = "k"', 'sweep = "kk"', "hypotheses.H1.sweep: the plan has no sweep 'kk'; did you mean 'k'?"),
    ('of = "four"', 'of = "for"', "sweeps.load.load.of: the plan has no cell 'for'; did you mean 'four'?"),
    ('name = "a-a"', 'name = "load"', "sweeps: 'load' is there twice"),
    (
        "seconds = 0.6",
        "seconds = 0.6\nwarm_up = 0.7",
        "sweeps.hold.warm_up: a warm-up of 0.7 s leaves nothing of 0.6 s",
    ),
    (
        "segments = [1, 4]",
        "batch = [64]",
        "sweeps.k.batch: segment-locks sells one order after the other, so it has no batches",
    ),
    (
        'base = { strategy = "segment-locks", section',
        'base = { strategy = "global-lock", section',
        "sweeps.k.segments: global-lock has no segments, so K=4 would change nothing",
    ),
    ("bench-plan/1", "bench-plan/9", "schema: Input should be 'segmented-bench-plan/1', not 'segmented-bench-plan/9'"),
]


def test_each_mistake_is_one_sentence_with_its_key(tmp_path: Path) -> None:
    for old, new, sentence in MISTAKES:
        assert refusal(written(tmp_path, (old, new))) == sentence


def test_a_cell_of_several_sweeps_runs_once_and_carries_their_names(tmp_path: Path) -> None:
    grid = grid_of(small_plan(tmp_path))
    found = {one.key: one for one in grid.cells}
    assert len(found) == len(grid.cells) == 5
    shared = found[K4.cell_id]
    assert (shared.sweeps, shared.arms, shared.seconds) == (("k", "hold", "a-a"), ("A", "B"), 0.6)
    assert grid.runs_planned == 2 * 6


def test_the_published_plan_fits_into_an_hour_and_its_quick_part_into_its_budget() -> None:
    loaded = read_plan(PLAN_FILE)
    whole, quick = grid_of(loaded), grid_of(loaded, is_quick=True)
    seconds, quick_seconds = (Estimate(one.calibration).left(turns_of(one), ()) for one in (whole, quick))
    assert whole.rounds == 10
    assert 40 * 60 < seconds < 55 * 60
    assert quick.budget is not None
    assert quick_seconds < quick.budget < 100


def test_bad_input_of_the_command_is_one_sentence_and_starts_nothing(tmp_path: Path) -> None:
    plan, folder = written(tmp_path), tmp_path / "results"
    for words, sentence in (
        (["granularty"], "unknown benchmark 'granularty'; did you mean 'granularity'?"),
        (
            ["--plan", str(plan), "--sweep", "lod", "--report", str(folder)],
            f"--sweep lod: {plan} has no such sweep; did you mean 'load'?",
        ),
        (["--plan", str(plan), "--report", str(plan)], f"--report {plan} cannot be used: Not a directory"),
        (["--plan", str(plan), "--json", str(tmp_path)], f"--json {tmp_path} is a folder, not a file"),
    ):
        done = ran("bench", *words, url=None)
        assert (done.returncode, done.stderr) == (2, f"segmented: {sentence}\n")
        assert not folder.exists()


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


def test_results_are_written_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    results = Results("demo", tuple(demo_run(name) for name in STORIES), {"cores": 2})
    write(results, file)
    written = json.loads(file.read_text())
    assert [run["cell"]["strategy"] for run in written["runs"]] == list(STORIES)
    assert written["conditions"] == {"cores": 2}
    assert written["findings"]["saturated"] == {name: [] for name in STORIES}
    assert written["remarks"][-1].startswith("Next: ")


def test_the_demos_strategies_are_there_and_one_of_all_is_the_control() -> None:
    assert {"no-lock", "global-lock", "segment-locks", "lock-free"} <= set(STRATEGIES)
    assert [name for name, strategy in STRATEGIES.items() if strategy.is_control] == ["no-lock"]
