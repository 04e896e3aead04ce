"""A plan is read and checked before anything is started: what is wrong is one sentence with file and key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from bench.analysis.usl import CLIENTS_MIN
from bench.engine.cell import Cell
from bench.engine.grid import grid_of
from bench.engine.plan import PLAN_FILE, read_plan
from bench.engine.schedule import planned_seconds
from bench.strategies import STRATEGIES
from segmented.errors import InvalidInput
from tests.support.bench.plans import small_plan, written
from tests.support.command_line import ran

if TYPE_CHECKING:
    from pathlib import Path

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


def test_what_is_no_toml_or_no_file_is_said_so(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    with pytest.raises(InvalidInput, match=f"{file} cannot be read: No such file or directory"):
        read_plan(file)
    file.write_text("rounds = = 2", encoding="utf-8")
    with pytest.raises(InvalidInput, match=f"{file} is not TOML: Invalid value"):
        read_plan(file)


def test_a_cell_of_several_sweeps_runs_once_and_carries_their_names(tmp_path: Path) -> None:
    grid = grid_of(small_plan(tmp_path))
    found = {one.key: one for one in grid.cells}
    assert len(found) == len(grid.cells) == 5
    shared = found[K4.cell_id]
    assert (shared.sweeps, shared.arms, shared.seconds) == (("k", "hold", "a-a"), ("A", "B"), 0.6)
    assert grid.runs_planned == 2 * 6


def test_an_open_cell_gets_its_rate_from_the_measured_capacity(tmp_path: Path) -> None:
    half, most = [one for one in grid_of(small_plan(tmp_path)).cells if one.sweeps == ("load",)]
    assert half.key == ("segment-locks K=4 N=64 B=1 5ms poisson=1/s 50% of segment-locks K=4 N=64 B=1 5ms")
    assert (half.at(731.4).offered_per_s, most.at(731.4).offered_per_s) == (366.0, 695.0)
    assert half.at(731.4).buyers == 64


def test_only_the_named_sweeps_are_measured(tmp_path: Path) -> None:
    loaded = small_plan(tmp_path)
    grid = grid_of(loaded, only=tuple(loaded.plan.orders))
    assert len(grid.cells) == 2
    assert grid.left_out == ("sweeps that are not measured: k, load, a-a",)
    with pytest.raises(InvalidInput, match="no sweep of load has a quick part"):
        grid_of(loaded, is_quick=True, only=("load",))


def test_the_published_plan_fits_into_an_hour_and_its_quick_part_into_its_budget() -> None:
    loaded = read_plan(PLAN_FILE)
    whole, quick = grid_of(loaded), grid_of(loaded, is_quick=True)
    assert whole.rounds == 10
    assert 40 * 60 < planned_seconds(whole) < 55 * 60
    assert quick.budget is not None
    assert planned_seconds(quick) < quick.budget < 100
    cells = [one for one in whole.cells if one.cell.strategy == "segment-locks"]
    assert len({one.cell.buyers for one in cells if "n" in one.sweeps}) >= CLIENTS_MIN


def test_the_hypothesis_that_nobody_oversells_asks_for_everybody_who_promises_it() -> None:
    (hypothesis,) = (one for one in read_plan(PLAN_FILE).plan.hypotheses if one.id == "H9")
    asked = {one.of["strategy"] for one in hypothesis.expect if one.figure == "oversold" and one.at_most == 0}
    assert asked == {name for name, one in STRATEGIES.items() if one.guarantees.never_oversells and not one.is_control}


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
